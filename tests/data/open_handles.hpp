// The number of HDF5 handles that a process has open.
#pragma once
#include <heed/data/detail/checkpoint_handle.hpp>

namespace heed::test {

inline std::size_t open_hdf5_handles() {
  const detail::Hdf5Session session;
  std::size_t count = 0;
  for (H5I_type_t type : {H5I_FILE, H5I_GROUP, H5I_DATATYPE, H5I_DATASPACE, H5I_DATASET, H5I_ATTR, H5I_GENPROP_LST}) {
    hsize_t members = 0;
    if (H5Inmembers(type, &members) >= 0) count += static_cast<std::size_t>(members);
  }
  return count;
}

}  // namespace heed::test
