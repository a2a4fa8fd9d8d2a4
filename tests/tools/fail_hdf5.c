// Part of the library of fail_io.c: makes a call of HDF5 fail that otherwise fails only without memory.
//
//   HEED_FAIL_HDF5    NAME:n   the n-th call of this function, one of those below
//
// HDF5's headers and library are not used: an id is an int64_t, a status an int.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int hdf5_fails(const char* name) {
  static int count = 0;
  const char* target = getenv("HEED_FAIL_HDF5");
  const size_t length = strlen(name);
  return target && strncmp(target, name, length) == 0 && target[length] == ':' && ++count == atoi(target + length + 1);
}

#define HDF5_FAILS_WITH(value, result, name, declaration, arguments) \
  result name declaration;                                           \
  result name declaration { return hdf5_fails(#name) ? value : ((__typeof__(&name))dlsym(RTLD_NEXT, #name))arguments; }
#define HDF5_ID(name, declaration, arguments) HDF5_FAILS_WITH(-1, int64_t, name, declaration, arguments)
#define HDF5_STATUS(name, declaration, arguments) HDF5_FAILS_WITH(-1, int, name, declaration, arguments)

typedef int64_t id;

HDF5_ID(H5Acreate2, (id object, const char* name, id type, id space, id create, id access),
        (object, name, type, space, create, access))
HDF5_STATUS(H5Awrite, (id attribute, id type, const void* from), (attribute, type, from))
HDF5_ID(H5Dcreate2, (id file, const char* name, id type, id space, id link, id create, id access),
        (file, name, type, space, link, create, access))
HDF5_FAILS_WITH(UINT64_MAX, uint64_t, H5Dget_offset, (id dataset), (dataset))
HDF5_STATUS(H5Dwrite, (id dataset, id type, id space, id file_space, id transfer, const void* from),
            (dataset, type, space, file_space, transfer, from))
HDF5_ID(H5Fcreate, (const char* name, unsigned flags, id create, id access), (name, flags, create, access))
HDF5_STATUS(H5Fflush, (id file, int scope), (file, scope))
HDF5_ID(H5FDregister, (const void* driver), (driver))
HDF5_ID(H5Gcreate2, (id file, const char* name, id link, id create, id access), (file, name, link, create, access))
HDF5_ID(H5Pcreate, (id kind), (kind))
HDF5_STATUS(H5Pset_char_encoding, (id list, int encoding), (list, encoding))
HDF5_STATUS(H5Pset_driver, (id list, id driver, const void* info), (list, driver, info))
HDF5_STATUS(H5Pset_userblock, (id list, uint64_t size), (list, size))
HDF5_ID(H5Screate, (int kind), (kind))
HDF5_ID(H5Tcopy, (id type), (type))
HDF5_ID(H5Tenum_create, (id base), (base))
HDF5_STATUS(H5Tenum_insert, (id type, const char* name, const void* value), (type, name, value))
HDF5_STATUS(H5Tset_size, (id type, size_t size), (type, size))
// This function does nothing and returns success, as if another version of HDF5 chose another format.
HDF5_FAILS_WITH(0, int, H5Pset_libver_bounds, (id list, int low, int high), (list, low, high))
