// SPDX-License-Identifier: Apache-2.0
// The table of all devices over several chips. One process, so the tests build on each other.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "device.h"

namespace torch_fl::runtime {
namespace {

namespace fs = std::filesystem;

std::string fake(const std::string& name) { return std::string(FAKES_DIR) + "/" + name + ".so"; }

PluginReport load_one(const std::string& path) {
  Registry::get().load({{path, "test"}});
  return Registry::get().reports().back();
}

TEST(RegistryOverChips, BadOnesAreReportedAndSkipped) {
  const PluginReport report = load_one(fake("major_2"));
  EXPECT_FALSE(report.loaded);
  EXPECT_EQ(report.path, fake("major_2"));
  EXPECT_EQ(report.source, "test");
  EXPECT_EQ(report.chip, "");
  EXPECT_NE(report.reason.find("ABI 2."), std::string::npos);
  EXPECT_EQ(Registry::get().device_count(), 0);
}

TEST(RegistryOverChips, DevicesOfAllChipsFormOneTable) {
  Registry& registry = Registry::get();
  EXPECT_TRUE(load_one(fake("good")).loaded);
  EXPECT_TRUE(load_one(fake("no_streams")).loaded);
  ASSERT_EQ(registry.device_count(), 4);
  EXPECT_EQ(registry.device(3).chip.name, "no_streams");
  EXPECT_EQ(registry.device(3).local_index, 1);
  EXPECT_EQ(registry.device(3).index, 3);
  EXPECT_EQ(&registry.at(2), &registry.device(2));
  try {
    registry.device(4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "invalid device index 4: there are 4 fl devices (fl:0 to fl:3)");
  }
}

TEST(RegistryOverChips, TheSameFileOrNameIsSkipped) {
  EXPECT_EQ(load_one(fake("good")).reason, "the same file has been loaded already");
  const fs::path link = fs::temp_directory_path() / ("fl_link_" + std::to_string(getpid()) + ".so");
  fs::create_symlink(fake("good"), link);
  EXPECT_EQ(load_one(link).reason, "the same file has been loaded already");
  fs::remove(link);
  EXPECT_EQ(load_one(fake("same_name")).reason, "a chip named good has been loaded already, from " + fake("good"));
  EXPECT_EQ(Registry::get().device_count(), 4);
}

TEST(RegistryOverChips, TooManyDevicesInAll) {
  EXPECT_EQ(load_one(fake("many")).reason, "its 63 devices would make 67 in all, but at most 64 can be used");
  EXPECT_EQ(Registry::get().device_count(), 4);
}

TEST(RegistryOverChips, AFolderMeansEveryLibraryInIt) {
  const fs::path folder = fs::temp_directory_path() / ("fl_folder_" + std::to_string(getpid()));
  fs::create_directories(folder);
  EXPECT_NE(load_one(folder).reason.find("found no file whose name ends in .so"), std::string::npos);
  std::ofstream(folder / "a.so") << "text";
  std::ofstream(folder / "readme.txt") << "text";
  fs::copy_file(fake("later"), folder / "b.so");
  const size_t before = Registry::get().reports().size();
  Registry::get().load({{folder, "test"}});
  const auto& reports = Registry::get().reports();
  ASSERT_EQ(reports.size(), before + 2);
  EXPECT_EQ(reports[before].path, folder / "a.so");
  EXPECT_FALSE(reports[before].loaded);
  EXPECT_TRUE(reports[before + 1].loaded);
  EXPECT_EQ(reports[before + 1].chip, "later");
  fs::remove_all(folder);
}

TEST(RegistryOverChips, DevicesWorkUntilShutdown) {
  Device& device = Registry::get().device(0);
  Device& synchronous = Registry::get().device(2);
  for (Device* d : {&device, &synchronous}) {
    Block* block = d->allocator().allocate(1000, 0);
    char text[6] = "hello", back[6] = "";
    d->copy(0, block->address, reinterpret_cast<fl_address>(text), 6, FL_COPY_HOST_TO_DEVICE);
    d->copy(0, reinterpret_cast<fl_address>(back), block->address, 6, FL_COPY_DEVICE_TO_HOST);
    EXPECT_STREQ(back, "hello");
    d->allocator().free(block);
  }
  fl_stream stream = nullptr;
  const StreamId id = device.new_stream(0);
  set_current_stream(0, id);
  EXPECT_EQ(host_services().current_stream("good", 0, &stream), FL_OK);
  EXPECT_EQ(stream, device.stream(id));
  EXPECT_EQ(host_services().current_stream("good", 2, &stream), FL_INVALID_ARGUMENT);
  EXPECT_EQ(take_plugin_message(), "current_stream: the chip good has 2 devices, but device 2 was asked for");
  set_current_stream(0, 0);

  Block* late = device.allocator().allocate(1000, 0);
  Registry::get().shutdown();
  Registry::get().shutdown();
  device.allocator().free(late);
  try {
    device.handle();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "good device fl:0 was closed: the process is exiting");
  }
}

}  // namespace
}  // namespace torch_fl::runtime
