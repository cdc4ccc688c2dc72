//! Hands on what the sys crate's build script says, as one that compiles C would use it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for key in ["INCLUDE", "LIB_CU12", "LIB_CU13", "NCCL_INCLUDE", "NCCL_LIB"] {
        let name = format!("DEP_NCCL_EP_{key}");
        println!("cargo::rerun-if-env-changed={name}");
        if let Ok(value) = std::env::var(&name) {
            println!("cargo::rustc-env={name}={value}");
        }
    }
}
