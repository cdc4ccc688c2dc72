//! A call, and what comes of it.

use nccl_ext_test::vendor::case::Ended;

use crate::fixture::Fixture;

/// What a call needs beyond plain arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// [`Fixture::comm`].
    Comm,
    /// Groups and handles.
    Objects,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The vendor's library and the CPU backend, which agree.
    Both,
    /// The vendor's library: what it does depends on CUDA being absent.
    Vendor,
}

/// What comes of a call.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// It returns, and this was seen.
    Seen(String),
    /// A failed `assert` with this condition; `ncclInvalidArgument` from the CPU backend.
    Assert(&'static str),
    /// A C++ exception with this in its message; a refusal by the CPU backend.
    Throw(&'static str),
}

type Call = Box<dyn Fn(&Fixture<'_>) -> String + Send + Sync>;

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) needs: Needs,
    pub(crate) asked: Asked,
    pub(crate) call: Call,
    expected: Expected,
    /// What the vendor's library prints when it refuses: the reason that the code does not tell.
    saying: String,
}

impl Row {
    pub(crate) fn new(
        name: impl Into<String>,
        expected: Expected,
        call: impl Fn(&Fixture<'_>) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            needs: Needs::Nothing,
            asked: Asked::Both,
            call: Box::new(call),
            expected,
            saying: String::new(),
        }
    }

    pub(crate) fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    pub(crate) fn vendor_only(self) -> Self {
        Self { asked: Asked::Vendor, ..self }
    }

    pub(crate) fn saying(self, saying: impl Into<String>) -> Self {
        Self { saying: saying.into(), ..self }
    }

    /// Compares what the vendor's library did.
    pub(crate) fn check_vendor(&self, ended: &Ended) -> Result<(), String> {
        let (kind, words) = match &self.expected {
            Expected::Seen(seen) => {
                ended.expect(&[seen])?;
                let said = ended.stderr.contains(&self.saying);
                let missing = || ended.fail(&format!("it should have said `{}`", self.saying));
                return if said { Ok(()) } else { Err(missing()) };
            }
            Expected::Assert(condition) => ("Assertion", *condition),
            Expected::Throw(what) => ("terminate called", *what),
        };
        let said = ended.stderr.contains(kind) && ended.stderr.contains(words);
        if ended.aborted() && said {
            Ok(())
        } else {
            Err(ended.fail(&format!("it should have aborted with `{kind}` and `{words}`")))
        }
    }

    /// Compares what the CPU backend did, and what it says that the vendor's library does.
    pub(crate) fn check_cpu(&self, ended: &Ended) -> Result<(), String> {
        let reports = ended.reports()?;
        let [seen, class] = reports[..] else { return Err(ended.fail("two lines were expected")) };
        let (holds, expected) = match &self.expected {
            Expected::Seen(text) if text.contains("ncclInvalid") => (seen == text, "Return"),
            Expected::Seen(text) => (seen == text, "no refusal"),
            Expected::Assert(_) => (seen.starts_with("ncclInvalidArgument"), "Assert"),
            Expected::Throw(_) => (seen.starts_with("ncclInvalid"), "Throw"),
        };
        if holds && !seen.ends_with("out set") && class == expected {
            Ok(())
        } else {
            Err(ended.fail(&format!("it should have reported {:?}, {expected}", self.expected)))
        }
    }
}

/// [`Expected::Seen`].
pub(crate) fn seen(text: impl Into<String>) -> Expected {
    Expected::Seen(text.into())
}
