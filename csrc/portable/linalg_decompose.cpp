// SPDX-License-Identifier: Apache-2.0
// QR, eigenvalues of symmetric matrices, singular values, least squares, the exponential.
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
    {"aten::_linalg_svd", svd},
    {"aten::linalg_matrix_exp", matrix_exp},
};

}  // namespace

void add_decompositions(Rows& rows, runtime::Chip& chip, Language language) {
  for (const LinearAlgebra& line : kOperators) add_linear_algebra(rows, chip, language, line);
}

}  // namespace torch_fl::portable
