// Forward, loss, backward and update of one network on one batch.
#include "shared/kernel.hpp"

#include "epilogues.hpp"
#include "gemm.hpp"
#include "losses.hpp"
#include "math.hpp"
#include "narrow.hpp"
#include "share.hpp"
#include "shared/hash.hpp"

namespace shoal {
namespace SHOAL_ISA {
namespace {

// ---- where things lie in the scratch memory ----

constexpr int64_t kSquareFloats = 1 << 16;  // of the gradient, whose squares are summed together

struct Scratch {
  float* memory;
  int64_t rows;  // rounded up to a cache line
  const Shape& shape;

  static int64_t width_stride(const Shape& s, int l) { return stride_for(s.dims[l + 1] + 1); }
  int64_t stride(int l) const { return width_stride(shape, l); }
  // Values of hidden layer l: (rows, stride), a column of ones after the last neuron, then zeros.
  float* values(int l) const {
    float* p = memory;
    for (int i = 0; i < l; ++i) p += 2 * rows * stride(i);
    return p;
  }
  // Derivatives of hidden layer l, later the gradient: (rows, stride).
  float* slopes(int l) const { return values(l) + rows * stride(l); }
  float* outputs() const { return values(shape.n_layers - 1); }
  // Some rows of weights, turned, for each thread; and sums of squares, which are needed at another time.
  float* turned(int thread) const { return outputs() + shape.outputs() * rows + thread * turned_floats(shape); }
  double* squares() const { return reinterpret_cast<double*>(turned(0)); }

  static int64_t turned_floats(const Shape& s) {
    int64_t widest = 0;
    for (int l = 1; l + 1 < s.n_layers; ++l) widest = s.dims[l + 1] > widest ? s.dims[l + 1] : widest;
    return widest * kPanelWidth;
  }
  static int64_t floats(const Shape& s, int64_t batch, int threads) {
    const int64_t most = block_rows(s), rows = round_up(batch < most ? batch : most, kLine);
    int64_t total = s.outputs() * rows;
    for (int l = 0; l + 1 < s.n_layers; ++l) total += 2 * rows * width_stride(s, l);
    const int64_t turned = threads * turned_floats(s), squares = 2 * square_parts(s);
    return total + (turned > squares ? turned : squares);
  }
  static int64_t square_parts(const Shape& s) { return (s.packed_floats() + kSquareFloats - 1) / kSquareFloats; }
};

int64_t layer_offset(const Shape& s, int layer) {
  int64_t offset = 0;
  for (int l = 0; l < layer; ++l) offset += (s.dims[l] + 1) * stride_for(s.dims[l + 1]);
  return offset;
}

// ---- forward ----

// Values (and slopes) of one vector of a row, with dropout; T is a vector or half of one.
template <int A, bool Drop, class T>
SHOAL_INLINE Activated<T> activate_vector(T x, int64_t neuron, uint32_t row_key, const Update* update) {
  Activated<T> result = activation<A>(x);
  if constexpr (Drop) {
    using I = decltype(bits(x));
    using U = std::conditional_t<lanes_of<T> == L, VU, HU>;
    U u = (lane_numbers<U>() + static_cast<uint32_t>(neuron)) * kNeuronFactor + row_key;
    u ^= u >> 16;
    u *= 0x7feb352du;
    u ^= u >> 15;
    u *= 0x846ca68bu;
    u ^= u >> 16;
    const auto kept = reinterpret_cast<I>(u >> 8) >= update->dropout_threshold;
    result.value = select(kept, result.value * update->dropout_scale, T{});
    result.derivative = select(kept, result.derivative * update->dropout_scale, T{});
  }
  return result;
}

// Where the values of a layer stand, and which of them a thread is to compute.
struct LayerPart {
  float *values, *slopes;
  int64_t stride, width;
  Range rows, columns;
};

// Turn pre-activations, which `source` gives for a few rows at a time, into values (and slopes); keep padding zero and
// the column of ones one.
template <int A, bool Train, bool Drop, class Source>
void activate_layer(const Source& source, const LayerPart& part, const DropoutKey& key, int64_t first_row,
                    const Update* update) {
  float *const values = part.values, *const slopes = part.slopes;
  const int64_t stride = part.stride, rest = part.width % L, whole = part.columns.end / L, j = whole * L;
  uint32_t keys[Source::kRows] = {};
  for (int64_t r = part.rows.first; r < part.rows.end; r += Source::kRows) {
    if constexpr (Drop)
      for (int i = 0; i < Source::kRows; ++i) keys[i] = key.row(static_cast<uint32_t>(first_row + r + i));
    for (int64_t v = part.columns.first / L; v < whole; ++v) {
      V x[Source::kRows];
      source.get(r, v * L, x);
#pragma GCC unroll 4
      for (int i = 0; i < Source::kRows; ++i) {
        const auto result = activate_vector<A, Drop>(x[i], v * L, keys[i], update);
        store(values + (r + i) * stride + v * L, result.value);
        if constexpr (Train) store(slopes + (r + i) * stride + v * L, result.derivative);
      }
    }
    const auto last = [&](auto zero) SHOAL_INLINE_LAMBDA {
      using T = decltype(zero);
      const auto lanes = lane_numbers<decltype(bits(zero))>();
      const auto inside = lanes < static_cast<int32_t>(rest);
      const T ones = select(lanes == static_cast<int32_t>(rest), set1<T>(1.0f), zero);
      T x[Source::kRows];
      source.get(r, j, x);
#pragma GCC unroll 4
      for (int i = 0; i < Source::kRows; ++i) {
        const auto result = activate_vector<A, Drop>(x[i], j, keys[i], update);
        store(values + (r + i) * stride + j, select(inside, result.value, ones));
        if constexpr (Train) store(slopes + (r + i) * stride + j, select(inside, result.derivative, zero));
        if constexpr (lanes_of<T> < L) {
          store(values + (r + i) * stride + j + kHalf, zero);
          if constexpr (Train) store(slopes + (r + i) * stride + j + kHalf, zero);
        }
      }
    };
    if (part.columns.end < part.width) continue;  // others have the last columns
    if (rest == 0) {
      for (int i = 0; i < Source::kRows; ++i)
        store(values + (r + i) * stride + j, select(lane_numbers() == 0, set1(1.0f), V{}));
    } else if (kHalf < L && rest < kHalf) {
      last(H{});
    } else {
      last(V{});
    }
  }
}

// outputs[o][r] = sum over j of values[r][j] * weights[o][j], L rows at a time, lanes summed by a shuffle tree.
void output_layer(const float* values, int64_t stride, int64_t rows, const float* weights, int64_t w_stride,
                  int64_t width, int64_t n_outputs, float* outputs, int64_t row_stride) {
  const int64_t vectors = (width + L - 1) / L;
  const int64_t row3 = 3 * stride;
  for (int64_t r = 0; r < rows; r += L) {
    for (int64_t o = 0; o < n_outputs; ++o) {
      V sums[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) sums[i] = V{};
      const float* w = weights + o * w_stride;
      const float* a = values + r * stride;
      for (int64_t v = 0; v < vectors; ++v, w += L, a += L) {
        const V right = load(w);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i)
          sums[i] += load(a + (i / 4) * 4 * stride + (i % 4 == 3 ? row3 : (i % 4) * stride)) * right;
      }
      store(outputs + o * row_stride + r, sum_rows(sums));
    }
  }
}

template <bool Train>
void run_forward(const Net& net, const Batch& batch, const Scratch& scratch, const Update* update, int64_t first_row,
                 const Team& team) {
  const Shape& s = net.shape;
  const float* input = batch.X;
  int64_t input_stride = batch.stride;
  const float* weights = net.weights;
  for (int l = 0; l + 1 < s.n_layers; ++l) {
    const int64_t width = s.dims[l + 1], w_stride = stride_for(width), stride = scratch.stride(l);
    float* values = scratch.values(l);
    const Matrices product{input, input_stride, 1, weights, w_stride, s.dims[l] + 1};
    const bool narrow = l == 0 && product.depth <= kNarrow;
    const bool drop = Train && update->dropout_threshold > 0;
    const DropoutKey key(drop ? update->seed : 0, drop ? update->step : 0, l);
    const auto activate_from = [&](auto source, Range rows, Range columns) {
      using Source = decltype(source);
      const LayerPart part{values, scratch.slopes(l), stride, width, rows, columns};
      with_activation(s.activation, [&](auto code) {
        constexpr int A = decltype(code)::value;
        const auto run = drop ? activate_layer<A, Train, Train, Source> : activate_layer<A, Train, false, Source>;
        run(source, part, key, first_row, update);
      });
    };
    share_product(team, product.depth, batch.rows, width, [&](int, Range rows, Range columns) {
      if (narrow) {
        activate_from(ShortProduct{product}, rows, columns);
      } else {
        multiply_part(product, rows, columns, Store{values, stride});
        activate_from(Stored{values, stride}, rows, columns);
      }
    });
    input = values;
    input_stride = stride;
    weights += (s.dims[l] + 1) * w_stride;
  }
  const int64_t width = s.last_width() + 1;
  const Cut cut(batch.rows, parts_for(team, batch.rows * width * s.outputs()), kLine);
  share(team, cut.parts, [&](int, int64_t number) {
    const int64_t first = cut.first(number), rows = cut.first(number + 1) - first;
    output_layer(input + first * input_stride, input_stride, rows, weights, s.output_stride(), width, s.outputs(),
                 scratch.outputs() + first, scratch.rows);
  });
}

// ---- backward ----

// (rows, stride) -> (columns, turned stride), L x L blocks in registers.
void turn(const float* weights, int64_t rows, int64_t columns, int64_t stride, float* turned, int64_t turned_stride) {
  for (int64_t i = 0; i < rows; i += L) {
    for (int64_t j = 0; j < columns; j += L) {
      V block[L];
#pragma GCC unroll 16
      for (int k = 0; k < L; ++k) block[k] = i + k < rows ? load(weights + (i + k) * stride + j) : V{};
      transpose(block);
      const int64_t count = columns - j < L ? columns - j : L;
      for (int64_t k = 0; k < count; ++k) store(turned + (j + k) * turned_stride + i, block[k]);
    }
  }
}

// Backward through all layers. `finish(layer offset, stride)` makes the epilogue that takes a layer's gradient.
template <class Finish>
void run_backward(const Net& net, const Batch& batch, const Scratch& scratch, const Team& team, const Finish& finish) {
  const Shape& s = net.shape;
  const int hidden = s.n_layers - 1;
  const int64_t rows = batch.rows, row_stride = scratch.rows;
  const auto input = [&](int l) { return l == 0 ? batch.X : static_cast<const float*>(scratch.values(l - 1)); };
  const auto input_stride = [&](int l) { return l == 0 ? batch.stride : scratch.stride(l - 1); };
  const float* errors = scratch.outputs();
  const int64_t out_offset = layer_offset(s, hidden), out_stride = s.output_stride();
  if (hidden == 1 && narrow_backward_fits(s)) {
    const int64_t width = s.dims[1], inputs = s.dims[0] + 1;
    const Cut neurons(width, parts_for(team, rows * width * inputs), L);
    share(team, neurons.parts, [&](int, int64_t number) {
      narrow_backward(
          {batch.X, batch.stride, scratch.values(0), scratch.slopes(0), scratch.stride(0), errors, row_stride,
           net.weights + out_offset, out_stride, rows, width, neurons.first(number), neurons.first(number + 1)},
          inputs, s.outputs(), finish(0, stride_for(width)), finish(out_offset, out_stride));
    });
    return;
  }
  if (hidden > 0) {
    multiply_shared(team, {errors, 1, row_stride, net.weights + out_offset, out_stride, s.outputs()}, rows,
                    s.last_width(), Scale{scratch.slopes(hidden - 1), scratch.stride(hidden - 1)});
  }
  multiply_shared(team, {errors, row_stride, 1, input(hidden), input_stride(hidden), rows}, s.outputs(),
                  s.last_width() + 1, finish(out_offset, out_stride));
  for (int l = hidden - 1; l >= 0; --l) {
    const int64_t fan_in = s.dims[l], width = s.dims[l + 1], stride = stride_for(width);
    const int64_t offset = layer_offset(s, l), slope_stride = scratch.stride(l);
    const float* gradient = scratch.slopes(l);
    if (l > 0) {
      const Scale below(scratch.slopes(l - 1), scratch.stride(l - 1));
      const Cut panels(fan_in, (fan_in + kPanelWidth - 1) / kPanelWidth, L);
      const auto one = [&](int thread, int64_t number) {
        const int64_t first = panels.first(number), count = panels.first(number + 1) - first;
        float* turned = scratch.turned(thread);
        turn(net.weights + offset + first * stride, count, width, stride, turned, kPanelWidth);
        multiply({gradient, slope_stride, 1, turned, kPanelWidth, width}, rows, count, below.shifted(0, first));
      };
      share(parts_for(team, rows * fan_in * width) > 1 ? team : kAlone, panels.parts, one);
    }
    multiply_shared(team, {input(l), 1, input_stride(l), gradient, slope_stride, rows}, fan_in + 1, width,
                    finish(offset, stride));
  }
}

// Clipping needs the norm of the whole gradient before anything is updated.
template <class Rule>
void update_clipped(const Net& net, const Scratch& scratch, const Update& update, const Team& team) {
  const int64_t count = net.shape.packed_floats(), parts = Scratch::square_parts(net.shape);
  const auto end_of = [&](int64_t part) { return (part + 1 < parts) ? (part + 1) * kSquareFloats : count; };
  double* squares = scratch.squares();
  share(team, parts, [&](int, int64_t number) {
    double square = 0;
    for (int64_t i = number * kSquareFloats; i < end_of(number); i += kLine) {
      V part{};
      for (int64_t j = i; j < i + kLine; j += L) part += load(net.gradient + j) * load(net.gradient + j);
      square += sum(part);
    }
    squares[number] = square;
  });
  double square = 0;
  for (int64_t i = 0; i < parts; ++i) square += squares[i];
  const double factor = update.clip / (__builtin_sqrt(square) + 1e-6);
  const float scale = factor >= 1.0 ? 1.0f : static_cast<float>(factor);  // NaN fails the test, and stays
  const Rule rule(update, place(net, 0));
  share(team, parts, [&](int, int64_t number) {
    for (int64_t i = number * kSquareFloats; i < end_of(number); i += L) rule.apply(i, load(net.gradient + i) * scale);
  });
}

// Backward of one block of rows. The gradient goes on from earlier blocks; after the last one the weights are updated,
// each as soon as its own gradient is there and no longer needed by the layer below.
template <class Rule>
void finish_block(const Net& net, const Batch& block, const Scratch& scratch, const Update& update, bool first,
                  bool last, const Team& team) {
  const auto before = [&](int64_t offset) { return first ? nullptr : net.gradient + offset; };
  if (last && !(update.clip > 0)) {
    run_backward(net, block, scratch, team, [&](int64_t offset, int64_t stride) {
      return Apply<Rule>(before(offset), Rule(update, place(net, offset)), stride);
    });
  } else {
    run_backward(net, block, scratch, team, [&](int64_t offset, int64_t stride) {
      return Accumulate(before(offset), net.gradient + offset, stride);
    });
    if (last) update_clipped<Rule>(net, scratch, update, team);
  }
}

// ---- the table ----

// At most `rows` rows of a batch, from `first` on, still divided by the whole batch's norm.
Batch block_of(const Batch& batch, int64_t first, int64_t rows) {
  Batch block = batch;
  block.rows = batch.rows - first < rows ? batch.rows - first : rows;
  block.X += first * batch.stride;
  block.labels += first;
  block.targets += first;
  block.weight += first;
  block.label_weight += first;
  return block;
}

template <class Rule>
double step_with(const Net& net, const Batch& batch, const Update& update, float* memory, const Team& team) {
  const int64_t most = net.block_rows, rows = batch.rows < most ? batch.rows : most;
  const Scratch scratch{memory, round_up(rows, kLine), net.shape};
  double loss = 0;
  for (int64_t first = 0; first < batch.rows; first += most) {
    if (first > 0 && update.give_up(update.asked)) break;
    const Batch block = block_of(batch, first, most);
    run_forward<true>(net, block, scratch, &update, first, team);
    loss += loss_of<true>(block, net.shape.outputs(), scratch.outputs(), scratch.rows, update.label_smoothing);
    finish_block<Rule>(net, block, scratch, update, first == 0, first + most >= batch.rows, team);
  }
  return loss;
}

double step(const Net& net, const Batch& batch, const Update& update, float* memory, const Team& team) {
  if (update.optimizer != Sgd) return step_with<AdamRule>(net, batch, update, memory, team);
  if (update.momentum > 0) return step_with<MomentumRule>(net, batch, update, memory, team);
  return step_with<SgdRule>(net, batch, update, memory, team);
}

const float* forward(const Net& net, const Batch& batch, float* memory, const Team& team) {
  const Scratch scratch{memory, batch.row_stride, net.shape};
  run_forward<false>(net, batch, scratch, nullptr, 0, team);
  return scratch.outputs();
}

double loss(const Shape& shape, const Batch& batch, const float* outputs) {
  return loss_of<false>(batch, shape.outputs(), const_cast<float*>(outputs), batch.row_stride, 0.0f);
}

}  // namespace
}  // namespace SHOAL_ISA

#define SHOAL_JOIN_(a, b) a##b
#define SHOAL_JOIN(a, b) SHOAL_JOIN_(a, b)
#define SHOAL_TEXT_(a) #a
#define SHOAL_TEXT(a) SHOAL_TEXT_(a)
const Kernel* SHOAL_JOIN(kernel_, SHOAL_ISA)() {
  namespace isa = SHOAL_ISA;
  static const Kernel table = {SHOAL_TEXT(SHOAL_ISA), isa::L, isa::Scratch::floats, isa::step, isa::forward, isa::loss};
  return &table;
}

}  // namespace shoal
