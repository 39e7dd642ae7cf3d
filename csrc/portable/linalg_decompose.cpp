// SPDX-License-Identifier: Apache-2.0
// QR, eigenvalues, singular values, least squares, the exponential.
#include <algorithm>
#include <cstring>
#include <limits>

#include "linalg.h"

namespace torch_fl::portable {
namespace {

#define LOAD_A "    la_copy(work, p.n, 1, V(a), p.m, p.n);\n"

// ---- QR ----

#define QR                                                  \
  LOAD_A                                                    \
  "    GLOBAL T *tau = work + p.m * p.n, *w = tau + p.k;\n" \
  "    la_qr(work, p.m, p.n, p.n, tau, 1, w);\n"
#define STORE_R "    la_triangle(V(r), work, p.n, 1, p.height, p.n, 0, 0);\n"

const char* qr(const fl_call& call, Problems& problems) {
  const bool with_q = std::strcmp(call.args[1].u.s, "r") != 0;
  Problem problem(call,
                  with_q ? QR STORE_R
                      "    GLOBAL T* const columns = w + p.longest;\n"
                      "    la_form_q(work, p.n, 1, tau, 1, columns, p.width, p.m, p.width, p.k, w);\n"
                      "    la_copy(V(q), columns, p.width, 1, p.m, p.width);\n"
                         : QR STORE_R,
                  {"linalg_qr.h"});
  problem.in("a", call.args[0], 2).out("r", call.outs[1], 2);
  if (with_q) problem.out("q", call.outs[0], 2);
  const int64_t m = problem.rows("a"), n = problem.columns("a"), k = std::min(m, n), width = problem.columns("q");
  problem.number("m", m).number("n", n).number("k", k).number("height", problem.rows("r")).number("width", width);
  problem.number("longest", std::max(m, n));
  problems.push_back(problem.work(m * n + k + std::max(m, n) + m * width));
  return nullptr;
}

const char* geqrf(const fl_call& call, Problems& problems) {
  Problem problem(call,
                  LOAD_A
                  "    la_qr(work, p.m, p.n, p.n, tau, tau_r, work + p.m * p.n);\n"
                  "    la_copy(V(out), work, p.n, 1, p.m, p.n);\n",
                  {"linalg_qr.h"});
  problem.in("a", call.args[0], 2).out("out", call.outs[0], 2).out("tau", call.outs[1], 1);
  const int64_t m = problem.rows("a"), n = problem.columns("a");
  problems.push_back(problem.number("m", m).number("n", n).work(m * n + n));
  return nullptr;
}

const char* householder_product(const fl_call& call, Problems& problems) {
  Problem problem(call,
                  "    la_form_q(V(a), tau, tau_r, work, p.n, p.m, p.n, p.k, work + p.m * p.n);\n"
                  "    la_copy(V(out), work, p.n, 1, p.m, p.n);\n",
                  {"linalg_qr.h"});
  problem.in("a", call.args[0], 2).in("tau", call.args[1], 1).out("out", call.outs[0], 2);
  const int64_t m = problem.rows("a"), n = problem.columns("a");
  problems.push_back(problem.number("m", m).number("n", n).number("k", problem.rows("tau")).work(m * n + n));
  return nullptr;
}

// C Q is the transpose of Q' C'.
const char* ormqr(const fl_call& call, Problems& problems) {
  const bool left = flag(call.args[3]), transposed = flag(call.args[4]);
  Problem problem(call,
                  "    la_copy(work, p.n, 1, V(c), p.m, p.n);\n"
                  "    la_apply_q(V(a), tau, tau_r, work, p.n, p.m, p.n, p.k, (int)p.transposed, work + p.m * p.n);\n"
                  "    la_copy(V(out), work, p.n, 1, p.m, p.n);\n",
                  {"linalg_qr.h"});
  problem.in("a", call.args[0], 2).in("tau", call.args[1], 1).in("c", call.args[2], 2).out("out", call.outs[0], 2);
  problem.transpose("c", !left).transpose("out", !left);
  const int64_t m = problem.rows("c"), n = problem.columns("c"), k = problem.rows("tau");
  if (problem.fault() == nullptr && (problem.rows("a") != m || k > std::min(m, problem.columns("a"))))
    return "reflectors that do not fit the matrix";
  problem.number("m", m).number("n", n).number("k", k).number("transposed", transposed == left ? 1 : 0);
  problems.push_back(problem.work(m * n + n));
  return nullptr;
}

// ---- Eigenvalues ----

const char* eigh(const fl_call& call, Problems& problems) {
  const bool vectors = flag(call.args[2]);
  const char* uplo = call.args[1].u.s;
  Problem problem(call,
                  vectors ? "    la_eigh(V(a), (int)p.lower, values, values_r, V(vectors), 1, p.n, work);\n"
                          : "    la_eigh(V(a), (int)p.lower, values, values_r, work, 0, 0, 0, p.n, work);\n",
                  {"linalg_qr.h", "linalg_eigh.h"});
  problem.in("a", call.args[0], 2).out("values", call.outs[0], 1);
  if (vectors) problem.out("vectors", call.outs[1], 2);
  const int64_t n = problem.rows("a");
  problem.number("lower", uplo[0] == 'L' || uplo[0] == 'l' ? 1 : 0).number("n", n);
  problems.push_back(problem.work(n * (2 * n + 4)));
  return nullptr;
}

const char* eig(const fl_call& call, Problems& problems) {
  const bool vectors = call.n_outs == 2;
  Problem problem(
      call,
      vectors
          ? "    la_eig(V(a), values, values_im, values_r, vectors, vectors_im, vectors_r, vectors_c, 1, p.n, work);\n"
          : "    la_eig(V(a), values, values_im, values_r, work, work, 0, 0, 0, p.n, work);\n",
      {"linalg_qr.h", "linalg_eig.h"});
  problem.in("a", call.args[0], 2).out_parts("values", "values_im", call.outs[0], 1);
  if (vectors) problem.out_parts("vectors", "vectors_im", call.outs[1], 2);
  const int64_t n = problem.rows("a");
  problems.push_back(problem.number("n", n).work(n * (2 * n + 9)));
  return nullptr;
}

// ---- Singular values: of the transpose where it has fewer rows ----

#define ROTATE(turns, complete)                                                \
  "    GLOBAL T *turned = work + p.rows * p.n, *sizes = turned + p.m * p.m;\n" \
  "    la_copy(work, p.n, 1, V(a), p.m, p.n);\n"                               \
  "    la_svd(work, turned, sizes, p.m, p.n, p.rows, " turns ", " complete ");\n"
#define STORE_SIZES "    for (i64 i = 0; i < p.m; ++i) s[i * s_r] = sizes[i];\n"

const char* svd(const fl_call& call, Problems& problems) {
  if (call.args[3].kind != FL_NONE) return "a driver";
  const bool vectors = flag(call.args[2]);
  Problem problem(call,
                  vectors ? ROTATE("1", "1") STORE_SIZES
                      "    la_copy(V(longer), work, p.n, 1, p.rows, p.n);\n"
                      "    la_copy(V(shorter), turned, p.m, 1, p.m, p.m);\n"
                          : ROTATE("0", "0") STORE_SIZES,
                  {"linalg_svd.h"});
  problem.in("a", call.args[0], 2).out("s", call.outs[1], 1);
  const bool tall = problem.rows("a") > problem.columns("a");
  problem.transpose("a", tall);
  if (vectors) {
    problem.out("longer", call.outs[tall ? 0 : 2], 2).transpose("longer", tall);
    problem.out("shorter", call.outs[tall ? 2 : 0], 2).transpose("shorter", !tall);
  }
  const int64_t m = problem.rows("a"), n = problem.columns("a"), rows = vectors ? problem.rows("longer") : m;
  problem.number("m", m).number("n", n).number("rows", rows);
  problems.push_back(problem.work(rows * n + m * m + m));
  return nullptr;
}

// Least squares: the shortest of the best solutions, from the singular values above rcond times the largest. With a
// wide matrix w has rows s v' and `turned` rows u'; with a tall one, which is seen transposed, it is the other way
// round.
#define LEAST_SQUARES                                                                                  \
  ROTATE("1", "0")                                                                                     \
  "    la_fill(V(x), p.unknowns, p.columns, 0, 0);\n"                                                  \
  "    i64 used = 0;\n"                                                                                \
  "    const T least = p.full ? (T)-1 : BITS_T((u64)p.rcond) * (p.m > 0 ? sizes[0] : (T)0);\n"         \
  "    for (i64 i = 0; i < p.m; ++i) {\n"                                                              \
  "      if (!(sizes[i] > least)) continue;\n"                                                         \
  "      ++used;\n"                                                                                    \
  "      GLOBAL T *row = work + i * p.n, *turn = turned + i * p.m;\n"                                  \
  "      la_scale(row, 1 / sqrt(la_dot(row, row, p.n)), p.n);\n"                                       \
  "      for (i64 j = 0; j < p.columns; ++j) {\n"                                                      \
  "        T part = 0;\n"                                                                              \
  "        for (i64 k = 0; k < p.equations; ++k) part += (p.tall ? row[k] : turn[k]) * AT(b, k, j);\n" \
  "        part /= sizes[i];\n"                                                                        \
  "        for (i64 k = 0; k < p.unknowns; ++k) AT(x, k, j) += part * (p.tall ? turn[k] : row[k]);\n"  \
  "      }\n    }\n"
#define STORE_RANK "    *rank = used;\n"

const char* lstsq(const fl_call& call, Problems& problems) {
  const char* driver = call.args[3].kind == FL_STRING ? call.args[3].u.s : "gelsy";
  const bool full = std::strcmp(driver, "gels") == 0;
  if (call.args[0].kind != FL_TENSOR || call.args[1].kind != FL_TENSOR) return "arguments that are no tensors";
  const fl_tensor &a = *call.args[0].u.tensor, &b = *call.args[1].u.tensor;
  const bool residuals = full && a.ndim >= 2 && a.sizes[a.ndim - 2] > a.sizes[a.ndim - 1];
  const bool with_sizes = std::strcmp(driver, "gelss") == 0 || std::strcmp(driver, "gelsd") == 0;
  Problem problem(call,
                  residuals ? LEAST_SQUARES
                      "    for (i64 j = 0; j < p.columns; ++j) {\n"
                      "      T sum = 0;\n"
                      "      for (i64 k = 0; k < p.equations; ++k) {\n"
                      "        T off = AT(b, k, j);\n"
                      "        for (i64 l = 0; l < p.unknowns; ++l) off -= AT(a, l, k) * AT(x, l, j);\n"
                      "        sum += off * off;\n      }\n"
                      "      residual[j * residual_r] = p.unknowns > 0 ? sum : (T)0;\n    }\n"
                  : full       ? LEAST_SQUARES "    (void)used;\n"
                  : with_sizes ? LEAST_SQUARES STORE_RANK STORE_SIZES
                               : LEAST_SQUARES STORE_RANK,
                  {"linalg_svd.h"});
  const int dims = b.ndim < a.ndim ? 1 : 2;
  problem.in("a", call.args[0], 2).in("b", call.args[1], dims).out("x", call.outs[0], dims);
  if (residuals) problem.out("residual", call.outs[1], 1);
  if (!full) problem.out("rank", call.outs[2], 0, FL_INT64);
  if (with_sizes) problem.out("s", call.outs[3], 1);
  const bool tall = problem.rows("a") > problem.columns("a");
  problem.transpose("a", tall);
  const int64_t m = problem.rows("a"), n = problem.columns("a");
  const bool wide_type = call.compute_dtype == FL_FLOAT64;
  const double eps = wide_type ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double rcond = call.args[2].kind == FL_REAL ? call.args[2].u.d : eps * static_cast<double>(n);
  problem.number("m", m).number("n", n).number("rows", m).number("tall", tall ? 1 : 0).number("full", full ? 1 : 0);
  problem.number("equations", problem.rows("b")).number("unknowns", problem.rows("x"));
  problem.number("columns", problem.columns("b")).number("rcond", static_cast<int64_t>(bits_of(rcond, wide_type)));
  problems.push_back(problem.work(m * n + m * m + m));
  return nullptr;
}

// ---- The exponential ----

const char* matrix_exp(const fl_call& call, Problems& problems) {
  Problem problem(call, "    la_exp(V(out), V(a), p.n, work);\n", {"linalg_exp.h"});
  problem.in("a", call.args[0], 2).out("out", call.outs[0], 2);
  const int64_t n = problem.rows("a");
  problems.push_back(problem.number("n", n).work(5 * n * n));
  return nullptr;
}

const LinearAlgebra kOperators[] = {
    {"aten::linalg_qr", qr},
    {"aten::geqrf", geqrf},
    {"aten::linalg_householder_product", householder_product},
    {"aten::ormqr", ormqr},
    {"aten::_linalg_eigh", eigh},
    {"aten::linalg_eig", eig},
    {"aten::_linalg_eigvals", eig},
    {"aten::_linalg_svd", svd},
    {"aten::linalg_lstsq", lstsq},
    {"aten::linalg_matrix_exp", matrix_exp},
};

}  // namespace

void add_decompositions(Rows& rows, runtime::Chip& chip, Language language) {
  for (const LinearAlgebra& line : kOperators) add_linear_algebra(rows, chip, language, line);
}

}  // namespace torch_fl::portable
