//! What the borrow checker must refuse.

#[test]
fn borrowed_buffers_stay_until_the_step_ends() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
