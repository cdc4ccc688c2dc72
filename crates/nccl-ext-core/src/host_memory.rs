//! Ordinary memory of the host, whose size a caller decides.

use crate::data_type::Element;
use crate::error::{Error, Result};
use crate::raw::ncclResult_t;

/// As many elements, all bytes zero. Too many are an error, and do not end the process.
pub(crate) fn zeroed<T: Element>(call: &'static str, len: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len).map_err(|_| Error::Native {
        call,
        code: ncclResult_t::ncclSystemError,
        detail: format!("no host memory for {len} elements of {} bytes", size_of::<T>()),
    })?;
    elements.resize(len, T::default());
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_an_error() {
        assert_eq!(zeroed::<u32>("a test", 3).unwrap(), [0; 3]);
        for len in [usize::MAX, 1 << 60] {
            let error = zeroed::<u64>("a test", len).unwrap_err();
            assert!(matches!(error, Error::Native { call: "a test", .. }), "{error}");
        }
    }
}
