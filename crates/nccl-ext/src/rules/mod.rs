//! Every rule that the crates check before a native call: `nccl-ext rules`.

mod listing;
mod markdown;

use std::process::ExitCode;

use clap::Args;
use nccl_ext_core::Scope;
use nccl_ext_core::rules::RuleInfo;
use serde::Serialize;

pub(crate) use self::listing::named;
use self::listing::{all, who};
use crate::failure::Failure;
use crate::output::{self, columns::Columns};

/// In which form to list them.
#[derive(Args, Debug, Clone, Default)]
pub struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Print the tables of the book's page.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// Lists them, on stdout.
///
/// # Errors
/// [`Failure::Output`] when stdout is at fault.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    output::print(&match arguments {
        Arguments { json: true, .. } => json(),
        Arguments { markdown: true, .. } => markdown::text(&all()),
        _ => table(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn table() -> String {
    let rows = all()
        .into_iter()
        .flat_map(|of| of.rules)
        .map(|info| [info.name, info.argument, who(info.scope), info.source, info.rule]);
    let heads = ["name", "argument", "error on", "source", "rule"];
    output::text(|text| Columns::new(|_| true).row(heads).rows(rows).write(text))
}

#[derive(Serialize)]
struct Listing {
    tool: &'static str,
    version: &'static str,
    rules: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    #[serde(rename = "crate")]
    crate_name: &'static str,
    argument: &'static str,
    rule: &'static str,
    /// `uniform`: every rank gets the error; `local`: one rank does.
    scope: &'static str,
    source: &'static str,
}

fn json() -> String {
    let listed = |crate_name, info: RuleInfo| Listed {
        name: info.name,
        crate_name,
        argument: info.argument,
        rule: info.rule,
        scope: if info.scope == Scope::Uniform { "uniform" } else { "local" },
        source: info.source,
    };
    let rules = all().into_iter();
    let rules = rules.flat_map(|of| of.rules.into_iter().map(move |info| listed(of.name, info)));
    let (tool, version) = ("nccl-ext", env!("CARGO_PKG_VERSION"));
    output::json(&Listing { tool, version, rules: rules.collect() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_name_means_one_rule_over_all_crates() {
        let mut names = BTreeMap::new();
        for of in all() {
            assert!(!of.rules.is_empty(), "{} lists no rule", of.name);
            for info in of.rules {
                let before = names.insert(info.name, of.name);
                assert_eq!(before, None, "{} stands in {} too", info.name, of.name);
                assert_eq!(named(info.name), Some(info));
            }
        }
    }

    #[test]
    fn every_rule_says_what_it_is_about_and_where_it_comes_from() {
        for info in all().into_iter().flat_map(|of| of.rules) {
            for words in [info.name, info.argument, info.rule, info.source] {
                assert!(!words.trim().is_empty() && !words.contains('\n'), "{info:?}");
            }
        }
    }
}
