//! How each versioned structure starts.

use crate::bindings::*;

// There is one published layout of each; the configuration takes no other size at all (M2N 1.4).
nccl_ext_core::versioned_structs! {
    ncclMesh_t from size_of::<Self>(), version: NCCL_M2N_API_VERSION;
    // `dtype` 0 is a valid type (int8): who fills the structure must not forget it.
    ncclDistTensor_t from size_of::<Self>(), version: NCCL_M2N_API_VERSION;
    ncclM2nConfig_t from size_of::<Self>(),
        magic: NCCL_M2N_API_MAGIC,
        version: NCCL_M2N_API_VERSION,
        maxCta: NCCL_M2N_CONFIG_UNDEF_INT;
}

/// M2N 1.3: the layouts of struct ABI version 2, where the libraries exist.
#[cfg(all(unix, target_pointer_width = "64"))]
const _: () = {
    assert!(size_of::<ncclMesh_t>() == 32);
    assert!(size_of::<ncclDistTensor_t>() == 56);
    assert!(size_of::<ncclM2nConfig_t>() == 24);
    assert!(NCCL_M2N_API_VERSION == 2);
};

#[cfg(test)]
mod tests {
    use nccl_ext_core::binding::VersionedStruct as _;

    use super::*;

    #[test]
    fn init_writes_what_the_c_initialisers_write() {
        let mesh = ncclMesh_t::init();
        assert_eq!((mesh.size, mesh.version, mesh.ndims, mesh.startRank), (32, 2, 0, 0));
        assert!(mesh.dims.is_null());
        let tensor = ncclDistTensor_t::init();
        assert_eq!((tensor.size, tensor.version, tensor.ndims, tensor.dtype.0), (56, 2, 0, 0));
        assert!(tensor.dataPtr.is_null() && tensor.localShape.is_null());
        assert!(tensor.mesh.is_null() && tensor.placements.is_null());
        let config = ncclM2nConfig_t::init();
        assert_eq!((config.size, config.magic, config.version), (24, 0x4d32_4e32, 2));
        assert_eq!(config.maxCta, i32::MIN);
    }

    #[test]
    fn constants_are_the_headers() {
        assert_eq!(NCCL_M2N_VERSION_CODE, 200);
        assert_eq!(NCCL_M2N_MIN_NCCL_VERSION_CODE, 23005);
        assert_eq!((NCCL_RESHARD_MAX_MESH_DIMS, NCCL_RESHARD_MAX_TENSOR_DIMS), (2, 3));
        assert_eq!(NCCL_RESHARD_REPLICATE, -1);
    }
}
