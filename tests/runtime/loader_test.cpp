// SPDX-License-Identifier: Apache-2.0
// Every kind of file that may lie where a plugin is expected. Built twice: also against a later minor of the ABI.
#include "loader.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace torch_fl::runtime {
namespace {

std::string fake(const std::string& name) { return std::string(FAKES_DIR) + "/" + name + ".so"; }

std::string refusal(const std::string& path) {
  try {
    load_plugin(path);
  } catch (const Refused& refused) {
    return refused.what();
  }
  return "it was loaded";
}

struct Case {
  const char* plugin;
  const char* expected;  // part of the reason
};

class Broken : public ::testing::TestWithParam<Case> {};

TEST_P(Broken, IsRefusedWithItsReason) {
  const std::string reason = refusal(fake(GetParam().plugin));
  EXPECT_NE(reason.find(GetParam().expected), std::string::npos)
      << "expected \"" << GetParam().expected << "\" in: " << reason;
}

const Case kCases[] = {
    {"major_2", "expected the major version 1, found 2"},
    {"null_with_message", "fl_plugin_get returned null: driver 3 or later expected, found 2"},
    {"null_without_message", "the plugin gave no reason"},
    {"plugin_size_small", "fl_plugin.struct_size is 40, but 112 to 65536 was expected"},
    {"plugin_size_huge", "fl_plugin.struct_size is 2147483647"},
    {"plugin_pointer_wild", "fl_plugin_get returned a pointer to no readable memory"},
    {"memory_size_small", "the table memory.struct_size is 24, but 104 to 65536 was expected"},
    {"memory_size_huge", "the table memory.struct_size is 3735928559"},
    {"memory_null", "the table memory is null"},
    {"memory_wild", "the table memory is a pointer to no readable memory"},
    {"memory_alloc_null", "the function memory.alloc is null"},
    {"stream_size_small", "the table stream.struct_size is 16"},
    {"stream_query_null", "the function stream.query is null"},
    {"host_free_missing", "has host_alloc but not host_free"},
    {"kernels_too_many", "n_kernels is 100001, but at most 100000"},
    {"kernels_wild", "fl_plugin.kernels is a pointer to less readable memory than its 2 rows need"},
    {"kernel_row_null", "row 1 of the kernel table is null"},
    {"kernel_size_small", "row 1 of the kernel table.struct_size is 8"},
    {"kernel_run_null", "row 1 of the kernel table (aten::add.Tensor) has no run function"},
    {"kernel_op_null", "row 1 of the kernel table, op is null"},
    {"kernel_op_bad", "names the operator \"add.Tensor\", but ns::name or ns::name.overload was expected"},
    {"kernel_op_endless", "has no end within 255 bytes"},
    {"kernel_twice", "names the operator aten::relu for the second time"},
    {"name_bad", "the chip's name is \"my chip/../x\""},
    {"name_null", "fl_plugin.name is null"},
    {"name_empty", "the chip's name is \"\""},
    {"vendor_binary", "fl_plugin.vendor holds bytes that are no printable UTF-8 text"},
    {"devices_minus", "claims to have -3 devices"},
    {"devices_65", "claims to have 65 devices, but 0 to 64 was expected"},
    {"devices_0", "found no device of the chip devices_0"},
    {"count_fails", "counting its devices failed: internal error: the driver is asleep"},
    {"properties_fail", "reading the properties of device 0 failed: internal error: no properties today"},
    {"properties_overrun", "were written beyond the struct_size"},
    {"device_name_endless", "name has no terminating NUL"},
    {"alignment_48", "alignment is 48, but a power of two was expected"},
    {"memory_zero", "total_memory is 0"},
    {"tuning_half", "the function tuning.candidates is null"},
    {"compiler_half", "the function compiler.identity is null"},
    {"profiler_half", "the function profiler.flush is null"},
    {"profiler_size_small", "the table profiler.struct_size is 40, but 48 to 65536 was expected"},
    {"no_symbol", "expected an exported function fl_plugin_get, found none"},
    {"throws_in_get", "fl_plugin_get threw a C++ exception: get is broken"},
    {"dependency_gone", "the dynamic linker refused it: libgone.so: cannot open shared object file"},
};
INSTANTIATE_TEST_SUITE_P(All, Broken, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.plugin); });

TEST(Loader, KernelFlagsThatNobodyKnowsAreRefused) {
  const std::string reason = refusal(fake("kernel_flags"));
  EXPECT_NE(reason.find("has flags that ABI 1."), std::string::npos) << reason;
}

// ---- Good ones -----------------------------------------------------------------------------------------------------

TEST(Loader, AGoodPluginIsCopied) {
  const LoadedPlugin loaded = load_plugin(fake("good"));
  const Chip& chip = *loaded.chip;
  EXPECT_EQ(chip.name, "good");
  EXPECT_EQ(chip.vendor, "Torch-FL tests");
  EXPECT_EQ(chip.version, "1.2");
  EXPECT_EQ(chip.path, fake("good"));
  EXPECT_TRUE(chip.has_streams);
  EXPECT_FALSE(chip.has_compiler);
  ASSERT_EQ(loaded.devices.size(), 2u);
  EXPECT_STREQ(loaded.devices[1].name, "Fake");
  EXPECT_EQ(loaded.devices[1].struct_size, sizeof(fl_device_properties));
  ASSERT_EQ(chip.kernels.size(), 2u);
  EXPECT_STREQ(chip.kernels[1].op, "aten::add.Tensor");
}

TEST(Loader, WithoutStreamsItIsSynchronous) { EXPECT_FALSE(load_plugin(fake("no_streams")).chip->has_streams); }

TEST(Loader, WhatAPluginSaysOfMissingDevicesIsKept) {
  const LoadedPlugin loaded = load_plugin(fake("device_missing"));
  EXPECT_EQ(loaded.devices.size(), 1u);
  EXPECT_EQ(loaded.note, "one more device is asleep");
  EXPECT_EQ(load_plugin(fake("good")).note, "");
}

TEST(Loader, APluginOfALaterMinorServes) {
  const LoadedPlugin loaded = load_plugin(fake("later"));
  EXPECT_EQ(loaded.chip->abi_minor, 1u);
  EXPECT_EQ(loaded.devices.size(), 2u);
  EXPECT_EQ(loaded.chip->memory.struct_size, sizeof(fl_memory_api));
}

TEST(Loader, TheProfilerTableIsTakenWhereThereIsOne) {
  EXPECT_FALSE(load_plugin(fake("good")).chip->has_profiler);
  for (const char* plugin : {"profiler", "later_profiler"}) {
    const LoadedPlugin loaded = load_plugin(fake(plugin));
    ASSERT_TRUE(loaded.chip->has_profiler) << plugin;
    EXPECT_GE(loaded.chip->profiler.struct_size, abi_1_0::kProfilerApi);
    int64_t device_ns = 1, host_ns = 1;
    EXPECT_EQ(loaded.chip->profiler.clock(nullptr, &device_ns, &host_ns), FL_OK);
    EXPECT_EQ(device_ns, 0);
  }
}

#ifdef LATER_HOST
TEST(Loader, APluginOfAnEarlierMinorServesAndWhatItLacksIsZero) {
  const LoadedPlugin loaded = load_plugin(fake("good"));
  const Chip& chip = *loaded.chip;
  EXPECT_EQ(chip.abi_minor, 0u);
  EXPECT_EQ(chip.memory.struct_size, abi_1_0::kMemoryApi);
  EXPECT_EQ(chip.memory.added_in_1_1, nullptr);
  EXPECT_FALSE(FL_HAS(&chip.memory, added_in_1_1));
  EXPECT_TRUE(FL_HAS(&chip.memory, info));
  EXPECT_EQ(chip.kernels[0].added_in_1_1, nullptr);
  EXPECT_STREQ(chip.kernels[1].op, "aten::add.Tensor");
  EXPECT_EQ(loaded.devices[0].added_in_1_1, nullptr);
}
#endif

// ---- Files that are no plugin --------------------------------------------------------------------------------------

class Files : public ::testing::Test {
 protected:
  Files() : folder(std::filesystem::temp_directory_path() / ("fl_loader_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder);
  }
  ~Files() override { std::filesystem::remove_all(folder); }
  std::string write(const std::string& bytes) {
    const std::string path = folder / "plugin.so";
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  static std::string good_bytes() {
    std::ifstream file(fake("good"), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect(const std::string& path, const std::string& part) {
    const std::string reason = refusal(path);
    EXPECT_NE(reason.find(part), std::string::npos) << "expected \"" << part << "\" in: " << reason;
  }
  std::filesystem::path folder;
};

TEST_F(Files, NoSuchFile) { expect(folder / "none.so", "cannot be opened: No such file or directory"); }

TEST_F(Files, TextFile) {
  expect(write("# not a library\nreally\n"),
         "expected a shared library (ELF), found a text file that starts with \"# not a library\"");
}

TEST_F(Files, EmptyFile) { expect(write(""), "expected a shared library (ELF), found an empty file"); }

TEST_F(Files, BinaryOfAnotherKind) { expect(write(std::string("MZ\x90\0\3", 5)), "starts with the bytes 4d 5a 90 00"); }

TEST_F(Files, Folder) { expect(folder, "expected a regular file"); }

TEST_F(Files, Pipe) {
  const std::string path = folder / "pipe.so";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect(path, "expected a regular file");
}

TEST_F(Files, OtherArchitecture) {
  std::string bytes = good_bytes();
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_machine = header.e_machine == EM_RISCV ? EM_X86_64 : EM_RISCV;
  std::memcpy(bytes.data(), &header, sizeof header);
  expect(write(bytes), ", found one for RISC-V");
}

TEST_F(Files, OtherWordSize) {
  std::string bytes = good_bytes();
  bytes[EI_CLASS] = ELFCLASS32;
  expect(write(bytes), "expected a library of 64 bits, found one of 32 bits");
}

TEST_F(Files, OtherByteOrder) {
  std::string bytes = good_bytes();
  bytes[EI_DATA] = bytes[EI_DATA] == ELFDATA2LSB ? ELFDATA2MSB : ELFDATA2LSB;
  expect(write(bytes), "byte order");
}

TEST_F(Files, ObjectFile) {
  std::string bytes = good_bytes();
  bytes[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  expect(write(bytes), "expected a shared library, found another kind of ELF file");
}

TEST_F(Files, CutShortAnywhere) {
  const std::string bytes = good_bytes();
  for (const size_t kept : {size_t{5}, size_t{20}, size_t{60}, size_t{100}, size_t{1000}, bytes.size() / 2}) {
    expect(write(bytes.substr(0, kept)), "the file is cut short");
  }
}

TEST_F(Files, DamagedHeader) {
  std::string bytes = good_bytes();
  bytes[offsetof(Elf64_Ehdr, e_phentsize)] = 7;
  expect(write(bytes), "ELF header is damaged");
}

}  // namespace
}  // namespace torch_fl::runtime
