//! Walks the validation table: every row has a call that breaks it, the error names the row, and
//! no native call was made.

use super::*;

/// The walks, each of which breaks the rows of its folder and says whether a row is one of them.
const WALKS: &[fn(&RuleInfo) -> bool] = &[
    agreement::walk::walk,
    combine::walk::walk,
    data::walk::walk,
    dispatch::walk::walk,
    group::walk::walk,
    handle::walk::walk,
    import::walk::walk,
    mask::walk::walk,
    plan::walk::walk,
    received::walk::walk,
    snapshot::walk::walk,
    stream::walk::walk,
    tensor::walk::walk,
    tensors::walk::walk,
    update::walk::walk,
];

#[test]
fn every_row_is_broken_by_a_call() {
    for row in all() {
        let walks = WALKS.iter().filter(|walk| walk(&row)).count();
        assert_eq!(walks, 1, "walks that break {}", row.name);
    }
}
