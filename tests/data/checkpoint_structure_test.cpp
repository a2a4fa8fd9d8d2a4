// Sealed checkpoints that another program made or changed: the supported part of HDF5, and errors for the rest.
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_handle.hpp>
#include <heed/data/detail/checkpoint_structure.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"
#include "tests/tools/seal.hpp"

using namespace heed;
using detail::Handle;
using heed::test::bytes_of, heed::test::quoted, heed::test::Ran, heed::test::run, heed::test::sealed;
using test::contains;
using test::error_of;
using test::TemporaryFolder;

namespace {

// The HDF5 file format: the default; the newest; and a file in the newest format to which a program with default
// settings adds a group, as h5py 3.16 does.
enum class Form { old, newest, old_in_newest };
constexpr Form kForms[] = {Form::old, Form::newest, Form::old_in_newest};

// A sealed file that HDF5 writes with a few calls.
template <class F>
std::string made_by_hdf5(const TemporaryFolder& folder, Form form, F&& fill) {
  const detail::Hdf5Session session;
  const std::filesystem::path path = folder.path / "made.h5";
  {
    const Handle create(H5Pcreate(H5P_FILE_CREATE), H5Pclose), access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_userblock(create, 512);
    if (form != Form::old) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, create, access);
    if (form == Form::old_in_newest) {
      H5Fclose(id);
      id = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    }
    const Handle file(id, H5Fclose);
    const Handle model(H5Gcreate2(file, "model", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    fill(static_cast<hid_t>(file), static_cast<hid_t>(model));
  }
  return sealed(bytes_of(path));
}

// Adds a data set of 100 floats with the creation properties that `change` sets.
template <class F>
void add_x(hid_t group, F&& change, const std::string& name = "x") {
  const hsize_t size = 100;
  const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose), list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  change(static_cast<hid_t>(list));
  const Handle made(H5Dcreate2(group, name.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, list, H5P_DEFAULT), H5Dclose);
  const std::vector<float> values(100, 1.5f);
  if (H5Pget_external_count(list) == 0 && H5Pget_layout(list) != H5D_VIRTUAL)
    H5Dwrite(made, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
}

// The message of loading these bytes, without the path of the folder.
std::string refusal(const TemporaryFolder& folder, const std::string& bytes) {
  std::string message = error_of([&] { load_checkpoint(folder.write("x.h5", bytes)); });
  const std::string prefix = "load_checkpoint: " + folder.path.string() + "/x.h5: ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

// The sealed file after a replacement of the n-th occurrence of `from`.
std::string replaced(std::string file, const std::string& from, const std::string& to, int n = 0) {
  std::size_t at = file.find(from);
  for (; n > 0 && at != std::string::npos; --n) at = file.find(from, at + 1);
  REQUIRE(at != std::string::npos);
  return sealed(file.replace(at, to.size(), to));
}

std::string number(std::uint64_t x) { return {reinterpret_cast<const char*>(&x), 8}; }

// A file of heed with two tensors, a counter and a text.
std::string small(const TemporaryFolder& folder) {
  Checkpoint c;
  c.counters["step"] = 12;
  c.texts["config"] = "{}";
  c.tensors["model/aa"] = Tensor::full({77}, 1.5, DType::float32);
  c.tensors["model/bb"] = Tensor::full({77}, 2.5, DType::float32);
  save_checkpoint(folder.path / "small.h5", c);
  return bytes_of(folder.path / "small.h5");
}

// The address in the link with this name.
std::string address_of(const std::string& file, const std::string& name) {
  return file.substr(file.find(std::string(1, static_cast<char>(name.size())) + name) + 1 + name.size(), 8);
}

}  // namespace

TEST_CASE("checkpoint structure: links and storage that make HDF5 read other files are refused") {
  const TemporaryFolder folder;
  const std::string elsewhere =
      "/model/x stores its values in other files or data sets; a checkpoint must contain its own values";
  const std::string chunks =
      "/model/x stores its values in chunks or compressed; they must be contiguous and uncompressed";
  const std::string link = "/model/x is a soft or external link; all objects must be in the file itself";
  for (const Form form : kForms) {
    INFO(static_cast<int>(form));
    const auto made = [&](auto&& fill) { return refusal(folder, made_by_hdf5(folder, form, fill)); };
    const auto made_x = [&](auto&& change) { return made([&](hid_t, hid_t model) { add_x(model, change); }); };
    CHECK(made_x([](hid_t) {}) == "");
    CHECK(made_x([](hid_t list) { H5Pset_layout(list, H5D_COMPACT); }) == "");
    CHECK(made_x([](hid_t list) { H5Pset_external(list, "/etc/passwd", 0, 400); }) == elsewhere);
    CHECK(made_x([](hid_t list) {
            const hsize_t size = 100;
            const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
            H5Pset_virtual(list, space, "/tmp/other.h5", "x", space);
          }) == elsewhere);
    const auto chunked = [](hid_t list) {
      const hsize_t size = 10;
      H5Pset_chunk(list, 1, &size);
    };
    CHECK(made_x(chunked) == chunks);
    CHECK(made_x([&](hid_t list) { chunked(list), H5Pset_fletcher32(list); }) == chunks);
    CHECK(made([](hid_t, hid_t model) { H5Lcreate_soft("/y", model, "x", H5P_DEFAULT, H5P_DEFAULT); }) == link);
    CHECK(made([](hid_t, hid_t model) {
            H5Lcreate_external("/etc/x.h5", "/y", model, "x", H5P_DEFAULT, H5P_DEFAULT);
          }) == link);
    CHECK(made([](hid_t file, hid_t model) { H5Lcreate_hard(file, "/model", model, "x", H5P_DEFAULT, H5P_DEFAULT); }) ==
          "/model is linked 2 times; each object must be linked once");
    CHECK(made([](hid_t, hid_t model) {
            add_x(model, [](hid_t) {});
            H5Lcreate_hard(model, "x", model, "y", H5P_DEFAULT, H5P_DEFAULT);
          }) == "/model/x is linked 2 times; each object must be linked once");
    CHECK(made([](hid_t, hid_t model) {  // a terabyte that was never written
            const hsize_t size = hsize_t{1} << 38;
            const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
            Handle(H5Dcreate2(model, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
          }) == "/model/x has no values in the file; a checkpoint must contain them");
    CHECK(made([](hid_t, hid_t model) {
            const hsize_t sizes[] = {hsize_t{1} << 40, hsize_t{1} << 40, 0};
            const Handle space(H5Screate_simple(3, sizes, nullptr), H5Sclose);
            Handle(H5Dcreate2(model, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
          }) == "/model/x has an axis of 1099511627776, so it is larger than any file");
    CHECK(made([](hid_t, hid_t model) {
            const Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
            H5Tcommit2(model, "t", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
            Handle(H5Dcreate2(model, "a", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
          }) == "/model/a shares a part with other objects; it must have its own");
    CHECK(made([](hid_t, hid_t model) {
            const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
            const std::string name = "\x1b[2J\xff";
            Handle(H5Dcreate2(model, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                   H5Dclose);
          }).starts_with("/model/\\x1B[2J\\xFF has no values"));
  }
}

TEST_CASE("checkpoint structure: groups of all sizes, in the old form and the new, with the values that HDF5 wrote") {
  const TemporaryFolder folder;
  for (const Form form : kForms)
    for (const int count : {0, 1, 8, 9, 40, 700, 1500}) {
      INFO(static_cast<int>(form), " ", count);
      const std::string file = made_by_hdf5(folder, form, [&](hid_t, hid_t model) {
        const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
        for (int i = 0; i < count; ++i) {
          const std::string name = "some.parameter.of.a.deep.model." + std::to_string(i);
          const Handle made(
              H5Dcreate2(model, name.c_str(), H5T_STD_I32BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
          H5Dwrite(made, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &i);
        }
      });
      const Checkpoint c = load_checkpoint(folder.write("many.h5", file));
      CHECK(static_cast<int>(c.tensors.size()) == count);
      int right = 0;
      for (const auto& [path, tensor] : c.tensors)
        right += path == "model/some.parameter.of.a.deep.model." + std::to_string(tensor.item<std::int32_t>());
      CHECK(right == count);
    }
}

TEST_CASE("checkpoint structure: parts that overlap, or exceed the file") {
  const TemporaryFolder folder;
  const std::string good = small(folder);
  CHECK(refusal(folder, good) == "");
  const std::string a = address_of(good, "aa"), b = address_of(good, "bb"), model = address_of(good, "model");
  CHECK(refusal(folder, replaced(good, b, a)) ==
        "/model/bb is a second link to an object; each object must have one name");
  CHECK(refusal(folder, replaced(good, b, model)) ==
        "/model/bb is a second link to an object; each object must have one name");
  CHECK(refusal(folder, replaced(good, "\2bb", "\2aa")) == "/model contains the name aa twice; names must be unique");
  CHECK(refusal(folder, replaced(good, "\2bb", "\2..")) ==
        "/model contains the name «..»; names must not be empty, ., .. or contain a slash");
  const std::string damaged = "the structure of /model/aa is damaged or unknown: ";
  CHECK(refusal(folder, replaced(good, number(77), number(std::uint64_t{1} << 38))) ==
        damaged + "its values do not have the size of its shape and type");
  CHECK(refusal(folder, replaced(good, number(77), number(~std::uint64_t{0}))) ==
        "/model/aa has an axis of 18446744073709551615, so it is larger than any file");
  // Both data sets, 308 bytes long, have the same address.
  const std::size_t first = good.find(number(308)), second = good.find(number(308), first + 8);
  std::string same = good;
  same.replace(second - 8, 8, good, first - 8, 8);
  CHECK(refusal(folder, sealed(same)) == "the structure of /model/bb is damaged or unknown: two of its parts overlap");
  same.replace(second - 8, 8, number(std::uint64_t{1} << 62));
  CHECK(refusal(folder, sealed(same)) == "the structure of /model/bb is damaged or unknown: its values");
  std::string extended = good;
  extended.replace(512 + 20, 8, number(48));
  CHECK(refusal(folder, sealed(extended)) ==
        "the structure of / is damaged or unknown: its superblock has an extension or lists of free space");
  std::string version = good;
  version[512 + 8] = 1;
  CHECK(refusal(folder, sealed(version)) == "its HDF5 has a superblock of version 1; it must be 0, 2 or 3");
  CHECK(contains(refusal(folder, sealed(good + std::string(8, '\0'))), "damaged or unknown: the end of the file"));
}

TEST_CASE("checkpoint structure: a text with a zero byte, and one that several data sets claim") {
  const TemporaryFolder folder;
  Checkpoint c;
  c.texts = {{"a", "first text"}, {"b", "other text"}};
  save_checkpoint(folder.path / "texts.h5", c);
  const std::string good = bytes_of(folder.path / "texts.h5");
  CHECK(refusal(folder, replaced(good, "first", std::string("fi\0st", 5))) ==
        "/a has a zero byte; texts must have none");
  // Each text is stored as its length, the address of a collection, and an index, where 1 is the file's attribute.
  const auto text = [&](char number) {
    for (std::size_t i = 512; i + 16 <= good.size(); ++i)
      if (good.substr(i, 4) == std::string("\x0a\0\0\0", 4) && good.substr(i + 12, 4) == std::string{number, 0, 0, 0})
        return i;
    return good.size();
  };
  const std::size_t at = text(2), next = text(3);
  REQUIRE(next < good.size());
  std::string same = good;
  same.replace(next, 16, good, at, 16);
  CHECK(refusal(folder, sealed(same)) ==
        "the structure of /b is damaged or unknown: two of its names or strings overlap");
}

TEST_CASE("checkpoint structure: sealed mutants neither crash, hang, print nor exhaust memory") {
  const TemporaryFolder folder;
  small(folder);
  folder.write("many.h5", made_by_hdf5(folder, Form::newest, [](hid_t, hid_t model) {
                 for (int i = 0; i < 60; ++i)
                   add_x(
                       model, [](hid_t) {}, "x" + std::to_string(i));
               }));
  for (const auto& [name, form] : {std::pair{"old.h5", Form::old}, {"both.h5", Form::old_in_newest}})
    folder.write(name, made_by_hdf5(folder, form, [](hid_t, hid_t model) { add_x(model, [](hid_t) {}); }));
  std::string command = "exec " + quoted(test::fuzz_checkpoint()) + " " + quoted(folder.path.string()) +
                        test::thinned(" 500", " 200") + " 1";
  for (const char* name : {"small.h5", "many.h5", "old.h5", "both.h5"})
    command += " " + quoted((folder.path / name).string());
  const Ran ran = run(command);
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
}
