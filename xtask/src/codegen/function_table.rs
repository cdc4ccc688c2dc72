//! The text of a function table: a struct of C function pointers, and how it is filled.

use super::bindings::Function;

/// A table named `table` with one field for each function of `library`.
pub(crate) fn text(table: &str, library: &str, functions: &[&Function]) -> String {
    let count = functions.len();
    let each =
        |f: &dyn Fn(&Function) -> String| -> String { functions.iter().map(|x| f(x)).collect() };
    let fields = each(&|f| format!("/// C `{0}`.\npub {0}: {1},\n", f.name, pointer_type(f)));
    let symbols = each(&|f| format!("c\"{}\",\n", f.name));
    let names = each(&|f| format!("{},\n", f.name));
    let casts = each(&|f| format!("{0}: core::mem::transmute::<*mut c_void, _>({0}),\n", f.name));
    let stubs = each(&stub);
    format!(
        "/// The functions of {library}, by their C names.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct {table} {{
{fields}
}}

impl {table} {{
    /// Names of all functions, in table order.
    pub const SYMBOLS: [&'static CStr; {count}] = [
{symbols}
    ];

    /// Fills the table with what `symbol` gives for each name.
    ///
    /// # Errors
    ///
    /// The names for which `symbol` gave null, all of them.
    ///
    /// # Safety
    ///
    /// Each pointer that is not null is the C function of that name, with the signature that its
    /// field here has, and stays callable as long as the table is used.
    pub unsafe fn resolve(
        symbol: impl FnMut(&'static CStr) -> *mut c_void,
    ) -> Result<Self, Vec<&'static str>> {{
        let found = Self::SYMBOLS.map(symbol);
        let missing: Vec<&'static str> = Self::SYMBOLS
            .iter()
            .zip(found)
            .filter(|(_, pointer)| pointer.is_null())
            .map(|(name, _)| name.to_str().unwrap_or_default())
            .collect();
        if !missing.is_empty() {{
            return Err(missing);
        }}
        let [
{names}
        ] = found;
        // SAFETY: none is null, and the caller vouches for the signatures.
        Ok(unsafe {{ Self {{
{casts}
        }} }})
    }}

    /// A table without a library: each function touches nothing and returns `ncclInvalidUsage`, or
    /// null or zero where it returns something else.
    pub const UNAVAILABLE: Self = {{
{stubs}
        Self {{
{names}
        }}
    }};
}}
"
    )
}

fn pointer_type(function: &Function) -> String {
    let parameters: Vec<String> =
        function.parameters.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
    format!("unsafe extern \"C\" fn({}){}", parameters.join(", "), arrow(function))
}

fn stub(function: &Function) -> String {
    let parameters: Vec<String> =
        function.parameters.iter().map(|(_, ty)| format!("_: {ty}")).collect();
    let body = match function.returns.as_deref() {
        None => "",
        Some("ncclResult_t") => "ncclResult_t::ncclInvalidUsage",
        Some(ty) if ty.starts_with("* const") => "core::ptr::null()",
        Some(ty) if ty.starts_with("* mut") => "core::ptr::null_mut()",
        Some(_) => "Default::default()",
    };
    format!(
        "unsafe extern \"C\" fn {}({}){} {{ {body} }}\n",
        function.name,
        parameters.join(", "),
        arrow(function)
    )
}

fn arrow(function: &Function) -> String {
    function.returns.as_ref().map(|ty| format!(" -> {ty}")).unwrap_or_default()
}
