// SPDX-License-Identifier: Apache-2.0
#include "linalg.h"

#include <algorithm>
#include <cstring>

#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

std::string number_text(size_t value) { return std::to_string(value); }

/// Threads do not share a matrix: small ones come together.
constexpr int64_t kWorthAnItem = 20000;

}  // namespace

Problem& Problem::add(const char* name, const fl_tensor* tensor, int dims, fl_dtype type, bool written) {
  const fl_dtype wanted = type == kElement ? element_ : type;
  if (tensor == nullptr || tensor->ndim < dims) {
    fault_ = "an argument or output is missing";
    return *this;
  }
  if (tensor->dtype != wanted) fault_ = "arguments of other element types";
  operands_.push_back({name, tensor, dims, wanted, written, false});
  return *this;
}

Problem& Problem::out_parts(const char* re, const char* im, const fl_tensor* tensor, int dims) {
  if (tensor == nullptr || !is_complex(tensor->dtype)) return add(re, nullptr, dims, kElement, true);
  const fl_dtype dtype = tensor->dtype == FL_COMPLEX128 ? FL_FLOAT64 : FL_FLOAT32;
  for (const bool imaginary : {false, true}) {
    auto part = std::make_shared<Part>();
    part->tensor = *tensor;
    part->tensor.dtype = dtype;
    for (int32_t d = 0; d < tensor->ndim; ++d) part->strides.push_back(2 * tensor->strides[d]);
    part->tensor.strides = part->strides.data();
    if (imaginary && tensor->numel > 0) part->tensor.address += static_cast<fl_address>(element_bytes(dtype));
    add(imaginary ? im : re, &part->tensor, dims, kElement, true);
    parts_.push_back(std::move(part));
  }
  return *this;
}

Problem::Operand* Problem::find(const char* name) {
  for (Operand& operand : operands_) {
    if (std::strcmp(operand.name, name) == 0) return &operand;
  }
  return nullptr;
}

Problem& Problem::transpose(const char* name, bool really) {
  if (Operand* operand = find(name)) operand->transposed = really;
  return *this;
}

Problem& Problem::number(const char* name, int64_t value) {
  numbers_.push_back({name, value});
  return *this;
}

int64_t Problem::extent(const char* name, int from_behind) const {
  const Operand* operand = const_cast<Problem*>(this)->find(name);
  if (operand == nullptr) return 0;
  if (operand->dims == 1) return from_behind == 2 ? operand->tensor->sizes[operand->tensor->ndim - 1] : 1;
  return operand->tensor->sizes[operand->tensor->ndim - (operand->transposed ? 3 - from_behind : from_behind)];
}

std::vector<int64_t> Problem::batch() const {
  std::vector<int64_t> sizes;
  for (const Operand& operand : operands_) {
    const auto rank = static_cast<size_t>(operand.batch());
    if (sizes.size() < rank) sizes.insert(sizes.begin(), rank - sizes.size(), 1);
    for (size_t d = 0; d < rank; ++d) {
      int64_t& size = sizes[sizes.size() - rank + d];
      if (operand.tensor->sizes[d] != 1) size = operand.tensor->sizes[d];
    }
  }
  return sizes;
}

const char* Problem::fault() const {
  if (fault_ != nullptr) return fault_;
  const std::vector<int64_t> sizes = batch();
  if (sizes.size() > kMostBatch) return "more dimensions of matrices than the portable kernels walk";
  for (const Operand& operand : operands_) {
    const auto rank = static_cast<size_t>(operand.batch());
    for (size_t d = 0; d < sizes.size(); ++d) {
      const bool has = d + rank >= sizes.size();
      const int64_t size = has ? operand.tensor->sizes[d + rank - sizes.size()] : 1;
      if (size == sizes[d]) continue;
      if (size != 1 || operand.written) return "batches that do not broadcast to the outputs'";
    }
  }
  return nullptr;
}

bool Problem::empty() const {
  return std::all_of(operands_.begin(), operands_.end(),
                     [](const Operand& operand) { return !operand.written || operand.tensor->numel == 0; });
}

void Problem::add_key(VariantKey& key) const {
  for (size_t byte = 0; byte < sizeof(body_); ++byte) {
    key.add(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(body_) >> (8 * byte)) & 0xff);
  }
  key.add(static_cast<uint32_t>(element_));
  key.add(static_cast<uint32_t>(batch().size()));
}

Source Problem::write() const {
  const bool wide = element_ == FL_FLOAT64;
  const size_t rank = batch().size();
  Source source;
  source.head =
      std::string("#define T ") +
      (wide ? "f64\n#define BITS_T BITS_f64\n#define EPS 2.220446049250313e-16\n" : "f32\n#define BITS_T BITS_f32\n") +
      (wide ? "#define SAFE_MIN 2.2250738585072014e-308\n"
            : "#define EPS 1.1920929e-07f\n#define SAFE_MIN 1.17549435e-38f\n") +
      text_of("linalg.h");
  for (const char* file : files_) source.head += text_of(file);
  source.members = "  i64 batches, chunk, work";
  for (size_t d = 0; d < rank; ++d) source.members += ", size" + number_text(d);
  for (const Number& number : numbers_) source.members += std::string(", ") + number.name;
  std::string& body = source.body;
  body = "  const i64 end = SHARE_END(p.chunk, p.batches);\n";
  if (work_ > 0) {
    source.pointers.push_back({"T", "room", true});
    body += "  GLOBAL T* const work = room + item * p.work;\n";
  }
  body += "  for (i64 at = item * p.chunk; at < end; ++at) {\n    i64 digits = at;\n";
  for (size_t d = rank; d-- > 0;) {
    const std::string k = number_text(d);
    body += "    const i64 i" + k + " = digits % p.size" + k + ";\n    digits /= p.size" + k + ";\n";
  }
  for (const Operand& operand : operands_) {
    const std::string name = operand.name, type = operand.type == element_ ? "T" : type_name(operand.type);
    source.pointers.push_back({type, name + "_all", operand.written});
    body +=
        "    GLOBAL " + std::string(operand.written ? "" : "const ") + type + "* const " + name + " = " + name + "_all";
    for (size_t d = 0; d < rank; ++d) {
      source.members += ", " + name + number_text(d);
      body += " + i" + number_text(d) + " * p." + name + number_text(d);
    }
    source.members += ", " + name + "_r, " + name + "_c";
    body += ";\n    const i64 " + name + "_r = p." + name + "_r, " + name + "_c = p." + name + "_c;\n";
    body += "    (void)" + name + "_r;\n    (void)" + name + "_c;\n";
  }
  body += body_;
  body += "  }\n";
  return source;
}

fl_status Problem::launch(const fl_call& call, runtime::Device& device, fl_module module) const {
  const std::vector<int64_t> sizes = batch();
  int64_t batches = 1, side = 1;
  for (const int64_t size : sizes) batches *= size;
  for (const Operand& operand : operands_) {
    for (int d = 1; d <= operand.dims; ++d) side = std::max(side, operand.tensor->sizes[operand.tensor->ndim - d]);
  }
  const Split work = split(device, batches, side > 30 ? 1 : std::max<int64_t>(1, kWorthAnItem / (side * side * side)));
  Arguments arguments;
  Members<128> words;
  for (const int64_t word : {batches, work.chunk, work_}) words.add(word);
  for (const int64_t size : sizes) words.add(size);
  for (const Number& number : numbers_) words.add(number.value);
  fl_address room = 0;
  if (work_ > 0) {
    const uint64_t bytes = work.items * static_cast<uint64_t>(work_) * (element_ == FL_FLOAT64 ? 8 : 4);
    const fl_status status = runtime::host_services().scratch(&call, bytes, &room);
    if (status != FL_OK) return status;
    arguments.add_address(room);
  }
  // What has no elements may have no address; a chip may want one all the same.
  fl_address some = room;
  for (const Operand& operand : operands_) {
    if (operand.tensor->numel > 0) some = operand.tensor->address;
  }
  for (const Operand& operand : operands_) {
    arguments.add_address(operand.tensor->numel > 0 ? operand.tensor->address : some);
    const auto rank = static_cast<size_t>(operand.batch());
    for (size_t d = 0; d < sizes.size(); ++d) {
      const size_t mine = d + rank - sizes.size();
      const bool walks = d + rank >= sizes.size() && operand.tensor->sizes[mine] != 1;
      words.add(walks ? operand.tensor->strides[mine] : 0);
    }
    const int64_t along = operand.dims == 0 ? 1 : operand.stride(1), down = operand.stride(2);
    const bool swapped = operand.transposed || operand.dims == 1;
    words.add(swapped ? along : down);
    words.add(swapped ? (operand.dims == 1 ? 1 : down) : along);
  }
  arguments.add_members(words.data(), words.bytes());
  return arguments.launch(call, device, module, work.items);
}

namespace {

class LinearAlgebraRow : public Row {
 public:
  LinearAlgebraRow(runtime::Chip& chip, Language language, const LinearAlgebra& line)
      : Row(chip, language), line_(line) {}

  fl_status read(const fl_call& call, Problems& problems) const {
    const char* fault = line_.read(call, problems);
    for (size_t i = 0; fault == nullptr && i < problems.size(); ++i) fault = problems[i].fault();
    return fault == nullptr ? FL_OK : decline(fault);
  }

  fl_status run(const fl_call& call) {
    Problems problems;
    const fl_status status = read(call, problems);
    if (status != FL_OK) return status;
    for (const Problem& problem : problems) {
      if (problem.empty()) continue;
      VariantKey key;
      problem.add_key(key);
      const fl_module module = variant(call, key, [&] { return problem.write(); });
      const fl_status launched = problem.launch(call, device(call), module);
      if (launched != FL_OK) return launched;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    return protect(call->kernel->op, [&] {
      Problems problems;
      return row_of<LinearAlgebraRow>(*call).read(*call, problems);
    });
  }

 private:
  const LinearAlgebra line_;
};

}  // namespace

void add_linear_algebra(Rows& rows, runtime::Chip& chip, Language language, const LinearAlgebra& line) {
  rows.push_back(make_row(line.op, 0, run_row<LinearAlgebraRow>, LinearAlgebraRow::supports,
                          keep<LinearAlgebraRow>(chip, language, line),
                          FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64)));
}

}  // namespace torch_fl::portable
