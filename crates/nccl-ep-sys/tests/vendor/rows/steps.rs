//! Structures of dispatch, combine and complete: all are looked at before the handle (EP 4.0).

use core::ptr::null_mut;

use nccl_ep_sys::{
    VersionedStruct, ncclEpCombineConfig_t, ncclEpCombineInputs_t, ncclEpCombineOutputs_t,
    ncclEpCompleteConfig_t, ncclEpDispatchConfig_t, ncclEpDispatchInputs_t,
    ncclEpDispatchOutputs_t, ncclEpHandle_t, ncclEpLayoutInfo_t,
};

use super::tensor::REQUIRED;
use crate::fixture::{Arg, Fixture, Given, name};
use crate::table::{Expected, Needs, Row, seen};

/// An argument's name and the smallest size that is accepted.
type Argument = (&'static str, usize);

/// In the order in which the library looks at them.
static DISPATCH: [Argument; 4] = [
    ("inputs", ncclEpDispatchInputs_t::V1_SIZE),
    ("outputs", ncclEpDispatchOutputs_t::V1_SIZE),
    ("layout_info", ncclEpLayoutInfo_t::V1_SIZE),
    ("config", ncclEpDispatchConfig_t::V1_SIZE),
];
static COMBINE: [Argument; 3] = [
    ("inputs", ncclEpCombineInputs_t::V1_SIZE),
    ("outputs", ncclEpCombineOutputs_t::V1_SIZE),
    ("config", ncclEpCombineConfig_t::V1_SIZE),
];

/// Arguments that are given otherwise than well.
type Odd = (&'static [Argument], Given);
type Call = fn(&Fixture<'_>, ncclEpHandle_t, Odd) -> String;

pub(super) fn rows() -> Vec<Row> {
    let refused = || seen("ncclInvalidArgument");
    let steps: [(&str, &'static [Argument], Call); 2] =
        [("dispatch", &DISPATCH, dispatch), ("combine", &COMBINE, combine)];
    let mut rows = Vec::new();
    for (step, arguments, call) in steps {
        for (i, &(argument, v1)) in arguments.iter().enumerate() {
            let odd = &arguments[i..=i];
            let mandatory = matches!(argument, "inputs" | "outputs");
            for given in Given::BAD.into_iter().chain(mandatory.then_some(Given::Null)) {
                let name = format!("{step}::{argument}_{}_and_no_handle", given.name());
                let row = Row::new(name, refused(), move |f| call(f, null_mut(), (odd, given)));
                rows.push(row.saying(given.complaint(argument, v1)));
            }
            // Accepted: the tokens, which are missing, are looked at next.
            for given in Given::ACCEPTED {
                let name = format!("{step}::{argument}_{}_reaches_the_tokens", given.name());
                let row = Row::new(name, Expected::Assert(REQUIRED), move |f| {
                    call(f, f.handle, (odd, given))
                });
                rows.push(row.needs(Needs::Objects));
            }
            let rest = &arguments[i..];
            if rest.len() > 1 {
                let name = format!("{step}::{argument}_before_what_follows");
                let given = Given::BelowV1;
                let row = Row::new(name, refused(), move |f| call(f, null_mut(), (rest, given)));
                rows.push(row.saying(given.complaint(argument, v1)));
            }
        }
    }
    rows.extend(Given::BAD.map(|given| {
        let name = format!("complete::config_{}_and_no_handle", given.name());
        let row = Row::new(name, refused(), move |f| complete(f, null_mut(), given));
        row.saying(given.complaint("config", ncclEpCompleteConfig_t::V1_SIZE))
    }));
    // High throughput has nothing to complete.
    rows.extend([Given::Null, Given::V1, Given::Larger].map(|given| {
        let name = format!("complete::config_{}", given.name());
        let row = Row::new(name, seen("ncclSuccess"), move |f| complete(f, f.handle, given));
        row.needs(Needs::Objects)
    }));
    rows
}

fn arg<T: VersionedStruct>(argument: &str, odd: Odd) -> Arg<T> {
    let is_odd = odd.0.iter().any(|(name, _)| *name == argument);
    Arg::init(if is_odd { odd.1 } else { Given::Good })
}

fn dispatch(f: &Fixture<'_>, handle: ncclEpHandle_t, odd: Odd) -> String {
    let inputs = arg::<ncclEpDispatchInputs_t>("inputs", odd);
    let outputs = arg::<ncclEpDispatchOutputs_t>("outputs", odd);
    let info = arg::<ncclEpLayoutInfo_t>("layout_info", odd);
    let config = arg::<ncclEpDispatchConfig_t>("config", odd);
    let stream = null_mut();
    // SAFETY: what is refused is refused before the handle is used.
    name(unsafe {
        (f.api.ncclEpDispatch)(
            handle,
            inputs.as_ptr(),
            outputs.as_ptr(),
            info.as_ptr(),
            config.as_ptr(),
            stream,
        )
    })
}

fn combine(f: &Fixture<'_>, handle: ncclEpHandle_t, odd: Odd) -> String {
    let inputs = arg::<ncclEpCombineInputs_t>("inputs", odd);
    let outputs = arg::<ncclEpCombineOutputs_t>("outputs", odd);
    let config = arg::<ncclEpCombineConfig_t>("config", odd);
    let stream = null_mut();
    // SAFETY: as above.
    name(unsafe {
        (f.api.ncclEpCombine)(handle, inputs.as_ptr(), outputs.as_ptr(), config.as_ptr(), stream)
    })
}

fn complete(f: &Fixture<'_>, handle: ncclEpHandle_t, given: Given) -> String {
    let config = Arg::<ncclEpCompleteConfig_t>::init(given);
    // SAFETY: as above.
    name(unsafe { (f.api.ncclEpComplete)(handle, config.as_ptr(), null_mut()) })
}
