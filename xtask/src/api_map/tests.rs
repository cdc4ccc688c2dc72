//! Small headers against small crates: what is found, and what must fail.

use super::c_api::{CApi, Enum};
use super::library::Library;
use super::matching::{Answer, Map};
use super::page;
use super::rust_api::RustApi;
use super::unwrapped::Entry;

/// As bindgen writes it: an enumeration, a structure with a typedef, a callback, a handle, a table.
const BINDINGS: &str = r#"
pub const NCCL_T_MAGIC: u32 = 7;
pub const NCCL_T_OTHER: u32 = 8;
impl ncclTMode_t {
    pub const NCCL_T_FAST: ncclTMode_t = ncclTMode_t(0);
    pub const NCCL_T_SAFE: ncclTMode_t = ncclTMode_t(1);
}
#[repr(transparent)]
pub struct ncclTMode_t(pub core::ffi::c_uint);
pub type ncclTFree_t = ::core::option::Option<unsafe extern "C" fn(ptr: *mut core::ffi::c_void)>;
pub struct ncclTConfig_v2 { pub size: usize, pub maxCta: core::ffi::c_int, pub mode: ncclTMode_t, pub free: ncclTFree_t }
impl Default for ncclTConfig_v2 { fn default() -> Self { unsafe { core::mem::zeroed() } } }
pub type ncclTConfig_t = ncclTConfig_v2;
pub struct ncclT { _unused: [u8; 0] }
pub type ncclT_t = *mut ncclT;
pub struct TApi { pub ncclTMake: unsafe extern "C" fn(config: *const ncclTConfig_t) -> ncclResult_t }
impl TApi { pub const SYMBOLS: [&'static CStr; 1] = [c"ncclTMake"]; }
"#;

const SOURCE: &str = r#"
//! A crate.
binding_struct! {
    /// Options.
    #[doc(alias = "ncclTConfig_t")]
    pub struct Config => ncclTConfig_t {
        /// Blocks.
        pub max_cta: Option<u32> = None,
        /// Mode.
        pub kind: Mode = Mode::Fast => mode,
        /// Of this crate alone.
        pub agreement: bool = a > b,
    }
}
c_enum! {
    /// How.
    pub enum Mode => ncclTMode_t "ncclTMode_t", default Fast {
        /// Fast.
        Fast = NCCL_T_FAST "NCCL_T_FAST", "fast";
        /// Safe.
        Safe = NCCL_T_SAFE "NCCL_T_SAFE", "safe";
    }
}
#[doc(alias = "ncclT_t")]
pub struct Thing { raw: ncclT_t }
impl<'a> Thing {
    #[doc(alias("ncclTMake", "make"))]
    pub fn new() -> Self { todo!() }
    #[doc(alias = "ncclTMake")]
    fn hidden() {}
}
pub unsafe trait Allocator {
    #[doc(alias = "ncclTFree_t")]
    unsafe fn free(&self);
}
#[cfg(test)]
mod tests {
    #[doc(alias = "ncclTMake")]
    pub fn not_this() {}
}
"#;

const SIZE: Entry = Entry { item: "*::size", reason: "the binding writes it" };

fn library(unwrapped: &'static [Entry]) -> Library {
    Library {
        name: "libnccl_t",
        crate_name: "nccl_t",
        bindings: "",
        sources: "crates/nccl-t/src",
        prefixes: &["ncclT", "NCCL_T_"],
        macros: &["NCCL_T_ONLY_A_MACRO"],
        unwrapped,
    }
}

fn map(source: &str, unwrapped: &'static [Entry]) -> Result<Map, String> {
    let c = CApi::parse(BINDINGS).unwrap();
    let rust = RustApi::parse(&[("lib.rs".into(), source.into())]).unwrap();
    Map::new(&library(unwrapped), &c, &rust)
}

fn rust(names: &[&str]) -> Option<Answer> {
    Some(Answer::Rust(names.iter().map(|name| (*name).to_owned()).collect()))
}

#[test]
fn the_items_of_bindings() {
    let c = CApi::parse(BINDINGS).unwrap();
    assert_eq!(c.functions, ["ncclTMake"]);
    assert_eq!(c.types, ["ncclTFree_t", "ncclT_t"]);
    assert_eq!(c.constants, ["NCCL_T_MAGIC", "NCCL_T_OTHER"]);
    let names: Vec<_> = c.structs.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["ncclTConfig_t"]);
    let values = vec!["NCCL_T_FAST".to_owned(), "NCCL_T_SAFE".to_owned()];
    assert_eq!(c.enums, [Enum { name: "ncclTMode_t".into(), values }]);
    assert!(CApi::parse("pub const A: u32 = 1;").is_err());
}

#[test]
fn counterparts_by_alias_by_macro_by_name_and_by_type() {
    let map = map(SOURCE, &[SIZE]).unwrap();
    let answer = |item: &str| map.answer(item).cloned();
    assert_eq!(answer("ncclTMake"), rust(&["Thing::new"]));
    assert_eq!(answer("ncclT_t"), rust(&["Thing"]));
    assert_eq!(answer("ncclTConfig_t"), rust(&["Config"]));
    assert_eq!(answer("ncclTConfig_t::maxCta"), rust(&["Config::max_cta"]));
    assert_eq!(answer("ncclTConfig_t::mode"), rust(&["Config::kind"]));
    assert_eq!(answer("ncclTConfig_t::free"), rust(&["Allocator::free"]));
    assert_eq!(answer("ncclTConfig_t::size"), Some(Answer::Reason("the binding writes it")));
    assert_eq!(answer("NCCL_T_SAFE"), rust(&["Mode::Safe"]));
    assert_eq!(answer("NCCL_T_MAGIC"), None);
}

#[test]
fn fields_of_plain_structures_and_bundles() {
    for declaration in [
        "#[doc(alias = \"ncclTConfig_t\")] pub struct Config<'a> {
             /// Size.
             pub size: usize, pub max_cta: u32, mode: u32 }",
        "bundle! { #[doc(alias = \"ncclTConfig_t\")] pub struct Config<'a>;
             required { size: Tensor<'a> } optional { /// Blocks.
             max_cta: Tensor<'a>, } }",
    ] {
        let problems = map(declaration, &[]).unwrap_err();
        assert!(!problems.contains("::maxCta`") && !problems.contains("::size`"), "{problems}");
        assert!(problems.contains("`ncclTConfig_t::mode` has no Rust counterpart"), "{problems}");
    }
}

/// Getters of a type whose fields are private, wherever its `impl` is.
#[test]
fn methods_of_the_fields_names() {
    let private = "#[doc(alias = \"ncclTConfig_t\")] pub struct Config { max_cta: u32 }
        impl Config { pub fn max_cta(&self) -> u32 { 0 } fn mode(&self) {} }";
    let problems = map(private, &[]).unwrap_err();
    assert!(!problems.contains("ncclTConfig_t::maxCta"), "{problems}");
    assert!(problems.contains("`ncclTConfig_t::mode` has no"), "{problems}");
    // `size` is the structure's size in C; here it is something else.
    let size = format!("{SOURCE} impl Config {{ pub fn size(&self) -> usize {{ 0 }} }}");
    let map = map(&size, &[SIZE]).unwrap();
    assert_eq!(map.answer("ncclTConfig_t::size"), Some(&Answer::Reason(SIZE.reason)));
}

#[test]
fn an_item_with_neither_is_named() {
    let problems = map(&SOURCE.replace("ncclTMake", "make"), &[SIZE]).unwrap_err();
    assert_eq!(
        problems,
        "  `ncclTMake` has no Rust counterpart (a `#[doc(alias = \"ncclTMake\")]` in \
         crates/nccl-t/src) and no reason in xtask/src/api_map/unwrapped.rs"
    );
    let problems = map(&SOURCE.replace("=> mode", "=> other"), &[SIZE]).unwrap_err();
    assert!(problems.contains("`ncclTConfig_t::mode` has no"), "{problems}");
    let problems = map(SOURCE, &[]).unwrap_err();
    assert!(problems.contains("`ncclTConfig_t::size` has no"), "{problems}");
}

#[test]
fn an_entry_for_what_is_wrapped_fails() {
    const MAKE: Entry = Entry { item: "ncclTMake", reason: "never" };
    let problems = map(SOURCE, &[SIZE, MAKE]).unwrap_err();
    assert!(
        problems.contains("covers `ncclTMake`, which is wrapped as `Thing::new`"),
        "{problems}"
    );
    const WHOLE: Entry = Entry { item: "ncclTConfig_t", reason: "never" };
    let problems = map(SOURCE, &[WHOLE]).unwrap_err();
    assert!(problems.contains("covers `ncclTConfig_t::mode`, which is wrapped"), "{problems}");
    const EVERYWHERE: Entry = Entry { item: "*::maxCta", reason: "never" };
    assert!(map(SOURCE, &[SIZE, EVERYWHERE]).is_err());
}

#[test]
fn an_entry_for_what_does_not_exist_fails() {
    const GONE: Entry = Entry { item: "ncclTGone", reason: "never" };
    const FIELD: Entry = Entry { item: "*::gone", reason: "never" };
    let problems = map(SOURCE, &[SIZE, GONE, FIELD]).unwrap_err();
    let line = |item| format!("`{item}` in xtask/src/api_map/unwrapped.rs is no C item (any more)");
    assert!(
        problems.contains(&line("ncclTGone")) && problems.contains(&line("*::gone")),
        "{problems}"
    );
}

#[test]
fn an_alias_of_nothing_fails() {
    let with = |alias: &str| format!("{SOURCE}\n#[doc(alias = \"{alias}\")] pub fn f() {{}}");
    let problems = map(&with("ncclTMade"), &[SIZE]).unwrap_err();
    assert_eq!(problems, "  `f` has the alias `ncclTMade`, which is no C item");
    for fine in ["NCCL_T_MAGIC", "NCCL_T_ONLY_A_MACRO", "ncclCommCount"] {
        assert!(map(&with(fine), &[SIZE]).is_ok(), "{fine}");
    }
}

#[test]
fn the_closest_reason_wins() {
    const TYPE: Entry = Entry { item: "ncclTConfig_t", reason: "the type's" };
    const EXACT: Entry = Entry { item: "ncclTConfig_t::mode", reason: "its own" };
    let bare = SOURCE.replace("binding_struct!", "something_else!");
    let map = map(&bare.replace("ncclTFree_t", "free"), &[TYPE, EXACT, SIZE, FREE]).unwrap();
    let answer = |item: &str| map.answer(item).cloned();
    assert_eq!(answer("ncclTConfig_t::mode"), Some(Answer::Reason("its own")));
    assert_eq!(answer("ncclTConfig_t::size"), Some(Answer::Reason("the type's")));
}

const FREE: Entry = Entry { item: "ncclTFree_t", reason: "never" };

#[test]
fn a_macro_call_of_another_form_is_an_error() {
    let odd = "c_enum! { pub enum Mode = 3; }";
    let error = RustApi::parse(&[("odd.rs".into(), odd.into())]).unwrap_err();
    let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
    assert!(causes[0].contains("odd.rs") && causes[1].contains("`c_enum!`"), "{causes:?}");
}

#[test]
fn the_page() {
    let c = CApi::parse(BINDINGS).unwrap();
    let source = format!("{SOURCE}\n#[doc(alias = \"NCCL_T_MAGIC\")] pub const MAGIC: u32 = 7;");
    let map = map(&source, &[SIZE]).unwrap();
    assert_eq!(
        page::part(&library(&[SIZE]), &c, &map),
        "
## libnccl_t in crate `nccl_t`

10 of 11 items have a counterpart.

### Functions

| function | Rust |
|---|---|
| `ncclTMake` | `Thing::new` |

### Types

| type | Rust |
|---|---|
| `ncclTFree_t` | `Allocator::free` |
| `ncclT_t` | `Thing` |

### Structures

#### `ncclTConfig_t`: `Config`

| field | Rust |
|---|---|
| `size` | *the binding writes it* |
| `maxCta` | `Config::max_cta` |
| `mode` | `Config::kind` |
| `free` | `Allocator::free` |

### Enumerations

#### `ncclTMode_t`: `Mode`

| value | Rust |
|---|---|
| `NCCL_T_FAST` | `Mode::Fast` |
| `NCCL_T_SAFE` | `Mode::Safe` |

### Constants

| constant | Rust |
|---|---|
| `NCCL_T_MAGIC` | `MAGIC` |
"
    );
}
