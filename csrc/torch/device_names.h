// SPDX-License-Identifier: Apache-2.0
// Vendors' names for their devices: "npu:0" for the first device of the chips whose descriptor says device_type: npu.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_fl::glue {

/// Makes torch.device("<name>"), "<name>:0", ... mean these fl devices, wherever PyTorch reads a device's name;
/// replaces what the name meant before. No devices: the name means nothing any more. Returns how many of PyTorch's
/// libraries read names through us; where it is 0, the name does not work. Thread-safe.
int name_devices(const std::string& name, const std::vector<int32_t>& devices);

}  // namespace torch_fl::glue
