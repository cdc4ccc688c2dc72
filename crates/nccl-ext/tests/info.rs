//! `info`, on a machine with or without the native libraries.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Ended, program, run};
use serde_json::Value;

#[test]
fn the_cpu_backend_is_always_there_and_the_native_one_says_why_not() {
    let nowhere = "/nonexistent/libnccl.so.2";
    let Ended { code, stdout, stderr } =
        run(program(&["info"]).env("NCCL_LIBRARY", nowhere).env("NCCL_EP_LIBRARY", nowhere));
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(stdout.starts_with(&format!("nccl-ext {}\n", env!("CARGO_PKG_VERSION"))), "{stdout}");
    assert!(stdout.contains("backend cpu: available, host memory\n"), "{stdout}");
    // The driver is looked for first.
    let native = stdout.lines().find(|line| line.starts_with("backend native: ")).unwrap();
    assert!(native.contains("not available: lib"), "{native}");
    assert!(native.contains("was not found; tried "), "{native}");

    let Ended { code, stdout, .. } = run(program(&["info", "--json"]).env("NCCL_LIBRARY", nowhere));
    assert_eq!(code, Some(0));
    let info: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&info["backends"][0]["name"], &info["backends"][0]["available"]),
        (&"cpu".into(), &true.into())
    );
    assert_eq!(info["backends"][0]["libraries"][1]["name"], "libnccl_ep.so.0");
    assert_eq!(info["backends"][1]["available"], false);
    assert!(info["backends"][1]["error"].as_str().unwrap().contains("was not found"));
}
