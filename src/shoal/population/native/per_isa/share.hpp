// Products that are shared by a team of threads: each thread computes some rows and columns of the result. Every
// element is summed as one thread would sum it, so the number of threads and who took which part change no bit.
#pragma once
#include "gemm.hpp"
#include "shared/team.hpp"

namespace shoal {
namespace SHOAL_ISA {
namespace {

constexpr int64_t kWorthSharing = 1 << 17;  // multiplications: a few microseconds, some times what sharing costs
constexpr int64_t kPartsPerThread = 4;      // so that a thread that is held up holds up little
constexpr int64_t kPanelWidth = kMaxVectors * L;

// Calls body(thread, number) for every number below `count`.
template <class Body>
SHOAL_INLINE void share(const Team& team, int64_t count, const Body& body) {
  if (team.threads == 1 || count == 1) {
    for (int64_t number = 0; number < count; ++number) body(0, number);
    return;
  }
  const Part part = [](const void* work, int thread, int64_t number) {
    (*static_cast<const Body*>(work))(thread, number);
  };
  team.run(team.self, count, part, &body);
}

// How many parts at least so many multiplications should have.
SHOAL_INLINE int64_t parts_for(const Team& team, int64_t multiplications) {
  return team.threads == 1 || multiplications < kWorthSharing ? 1 : team.threads * kPartsPerThread;
}

// `total` things in `parts` of nearly equal size: part i begins at first(i), in multiples of `grain`.
struct Cut {
  int64_t total, parts, grain, grains;
  Cut(int64_t all, int64_t wanted, int64_t multiple) : total(all), grain(multiple) {
    grains = (total + grain - 1) / grain;
    parts = wanted < grains ? wanted : grains;
    if (parts < 1) parts = 1;
  }
  int64_t first(int64_t i) const {
    const int64_t at = grains * i / parts * grain;
    return at < total ? at : total;
  }
};

struct Range {
  int64_t first, end;
  int64_t count() const { return end - first; }
};

// Calls body(thread, rows, columns) for parts of a (rows, columns) result, each at most a panel wide, the parts of a
// panel one after the other. With one thread, or where it is not worth it, all of it is one part.
template <class Body>
SHOAL_INLINE void share_product(const Team& team, int64_t depth, int64_t rows, int64_t columns, const Body& body) {
  const int64_t parts = parts_for(team, rows * columns * depth);
  if (parts == 1) {
    body(0, Range{0, rows}, Range{0, columns});
    return;
  }
  const Cut across(columns, (columns + kPanelWidth - 1) / kPanelWidth, L);
  const Cut down(rows, (parts + across.parts - 1) / across.parts, kLine);
  share(team, across.parts * down.parts, [&](int thread, int64_t number) {
    const int64_t i = number % down.parts, j = number / down.parts;
    body(thread, Range{down.first(i), down.first(i + 1)}, Range{across.first(j), across.first(j + 1)});
  });
}

template <class Epilogue>
void multiply_part(const Matrices& p, Range rows, Range columns, const Epilogue& epilogue) {
  Matrices part = p;
  part.A += rows.first * p.a_row;
  part.B += columns.first;
  multiply(part, rows.count(), columns.count(), epilogue.shifted(rows.first, columns.first));
}

template <class Epilogue>
void multiply_shared(const Team& team, const Matrices& p, int64_t rows, int64_t columns, const Epilogue& epilogue) {
  share_product(team, p.depth, rows, columns, [&](int, Range r, Range c) { multiply_part(p, r, c, epilogue); });
}

}  // namespace
}  // namespace SHOAL_ISA
}  // namespace shoal
