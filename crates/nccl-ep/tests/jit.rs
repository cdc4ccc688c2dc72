//! A group whose library could not compile its kernels is not made, and no native call is.
//!
//! The environment decides, so each case runs in a child: this binary again.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nccl_ep::{Group, GroupConfig, MemorySpace};
use nccl_ext_core::jit::JitRoots;
use nccl_ext_test::child::{Child, say};
use nccl_ext_test::stub::ep as stub;

const TREE: &str = "NCCL_EXT_TEST_TREE";

/// A staged tree, a toolkit and a folder for `PATH`, all empty files.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let machine = Self(root.join(format!("jit-{name}-{}", std::process::id())));
        for header in ["common.hpp", "ep_enums.h", "config.h", "device/ht_ep.cuh"] {
            machine.file(&format!("native/ep/include/nccl_ep/{header}"), "");
        }
        machine.file("native/ep/include/nccl_ep.h", "");
        machine.file("native/ep/lib/cu13/libnccl_ep.so.0", "");
        for header in ["nccl.h", "nccl_device.h", "nccl_device/core.h"] {
            machine.file(&format!("native/nccl/include/{header}"), "");
        }
        machine.file("native/nccl/lib/libnccl.so.2", "");
        std::fs::create_dir_all(machine.0.join("bin")).unwrap();
        machine
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A toolkit whose compiler says its version as the real one does.
    fn toolkit(&self, name: &str, version: &str) -> PathBuf {
        let says =
            format!("#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.9'");
        let nvcc = self.file(&format!("{name}/bin/nvcc"), &says);
        std::fs::set_permissions(&nvcc, Permissions::from_mode(0o755)).unwrap();
        self.file(&format!("{name}/include/cuda_runtime.h"), "");
        nvcc
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What group creation says with exactly these variables.
    fn create(&self, variables: &[(&str, PathBuf)]) -> String {
        let child = Child::new().env("PATH", self.path("bin")).env(TREE, self.path("native"));
        let child = variables.iter().fold(child, |child, (name, value)| child.env(name, value));
        child.says()
    }

    /// The variables that a good environment has.
    fn homes(&self) -> [(&'static str, PathBuf); 2] {
        [("NCCL_EP_HOME", self.path("native/ep")), ("NCCL_HOME", self.path("native/nccl"))]
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Not a test of its own: creates a group in the environment that it was started with.
#[test]
fn child() {
    let Some(tree) = std::env::var_os(TREE).map(PathBuf::from) else { return };
    let roots = JitRoots {
        spec: &nccl_ep_sys::JIT,
        library: tree.join("ep/lib/cu13/libnccl_ep.so.0"),
        nccl: tree.join("nccl/lib/libnccl.so.2"),
        cuda_major: Some(13),
    };
    // SAFETY: the stubs keep to the contracts, as far as they do anything.
    let backend = unsafe { stub::builder(MemorySpace::Host, |_| {}).jit(roots).build() };
    let comm = stub::comm_on(backend, 1);
    let create = || {
        let config =
            GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
        Group::create(&comm, &config)
    };
    if std::env::var_os("APPLY").is_some() {
        // SAFETY: the test harness waits for this thread and reads no variable meanwhile.
        unsafe { backend.jit_env().unwrap().apply() };
    }
    let made = create();
    let calls = stub::take_calls();
    match made {
        Ok(group) => {
            assert_eq!(calls, ["ncclEpCreateGroup"]);
            say("made");
            group.destroy().unwrap();
        }
        Err(error) => {
            assert!(calls.is_empty(), "{calls:?}");
            say(error);
        }
    }
}

#[test]
fn a_whole_environment_makes_a_group() {
    let machine = Machine::new("whole");
    let nvcc = machine.toolkit("cuda", "13.0");
    let [ep, nccl] = machine.homes();
    assert_eq!(machine.create(&[ep.clone(), nccl.clone(), ("NVCC", nvcc)]), "made");
    let home = ("CUDA_HOME", machine.path("cuda"));
    assert_eq!(machine.create(&[ep, nccl, home]), "made");
}

/// Case L9.
#[test]
fn no_nvcc_lists_every_place_that_the_library_looks_at() {
    let machine = Machine::new("no-nvcc");
    let message = machine.create(&machine.homes());
    if Path::new("/usr/local/cuda/bin/nvcc").exists() {
        // Found, though not where the library looks.
        assert!(message.contains("set NCCL_EP_JIT_NVCC=/usr/local/cuda/bin/nvcc"), "{message}");
        return;
    }
    assert_eq!(
        message,
        "nvcc was not found, which libnccl_ep compiles its kernels with; tried NCCL_EP_JIT_NVCC \
         (variable): not set; NVCC (variable): not set; CUDA_HOME (variable): not set; CUDA_PATH \
         (variable): not set; nvcc (on PATH): in no folder of PATH; install a CUDA toolkit or set \
         NCCL_EP_JIT_NVCC"
    );
}

/// Case L9.
#[test]
fn a_variable_that_leads_nowhere_is_named_and_ends_the_search() {
    let machine = Machine::new("nowhere");
    let home = ("CUDA_HOME", machine.path("cuda"));
    machine.toolkit("cuda", "13.0");
    let [ep, nccl] = machine.homes();
    let wrong = machine.path("nowhere/nvcc");
    let message = machine.create(&[ep, nccl, home, ("NCCL_EP_JIT_NVCC", wrong.clone())]);
    let tried = format!("{} (NCCL_EP_JIT_NVCC is set): no such file", wrong.display());
    assert!(message.contains(&tried) && !message.contains("CUDA_HOME"), "{message}");
}

/// Case L10.
#[test]
fn a_compiler_of_another_major_is_refused_with_both() {
    let machine = Machine::new("other-major");
    let nvcc = machine.toolkit("cuda", "12.9");
    let [ep, nccl] = machine.homes();
    let message = machine.create(&[ep, nccl, ("NVCC", nvcc.clone())]);
    let library = machine.path("native/ep/lib/cu13/libnccl_ep.so.0");
    assert_eq!(
        message,
        format!(
            "{} is built for CUDA 13, but the compiler that it would start, {}, is of CUDA 12; \
             name one of CUDA 13 with NCCL_EP_JIT_NVCC, or choose libraries with \
             NCCL_EXTENSIONS_CUDA=12",
            library.display(),
            nvcc.display()
        )
    );
    // The toolkit's header says it without starting the compiler.
    machine.file("cuda/include/cuda.h", "#define CUDA_VERSION 13010\n");
    assert_eq!(machine.create(&[machine.homes().as_slice(), &[("NVCC", nvcc)]].concat()), "made");
}

#[test]
fn missing_headers_are_listed_with_the_value_to_set_and_setting_them_helps() {
    let machine = Machine::new("headers");
    let nvcc = ("NVCC", machine.toolkit("cuda", "13.0"));
    let message = machine.create(std::slice::from_ref(&nvcc));
    for (name, home) in machine.homes() {
        let set = format!("set {name}={} (it is not set", home.display());
        assert!(message.contains(&set), "{message}");
    }
    assert_eq!(machine.create(&[nvcc, ("APPLY", "1".into())]), "made");
}

#[test]
fn a_variable_that_leads_to_the_wrong_folder_is_named_with_what_is_missing_there() {
    let machine = Machine::new("wrong");
    let nvcc = ("NVCC", machine.toolkit("cuda", "13.0"));
    let [ep, (nccl, _)] = machine.homes();
    let wrong = machine.path("bin");
    let message = machine.create(&[nvcc.clone(), ep.clone(), (nccl, wrong.clone())]);
    let expected = format!("({} has no nccl.h)", wrong.join("include").display());
    assert!(message.contains("set NCCL_HOME=") && message.contains(&expected), "{message}");

    // The direct variables name the folder itself.
    std::fs::remove_dir_all(machine.path("native/ep/include/nccl_ep/device")).unwrap();
    let direct = ("NCCL_EP_JIT_SOURCE_DIR", machine.path("native/ep/include/nccl_ep"));
    let message = machine.create(&[nvcc, ep, direct, (nccl, machine.path("native/nccl"))]);
    assert!(message.contains("set NCCL_EP_JIT_SOURCE_DIR ("), "{message}");
    assert!(message.contains("has no device; none was found)"), "{message}");
}
