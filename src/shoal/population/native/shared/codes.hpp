// Words that Python and the kernel exchange as numbers. Each list is written once: it makes the enum here, and its
// words are compared with Python's when shoal is imported (engines/native.py).
#pragma once
#include <cstdint>

#define SHOAL_ACTIVATIONS(CODE)  \
  CODE(Identity, "identity")     \
  CODE(Sigmoid, "sigmoid")       \
  CODE(Tanh, "tanh")             \
  CODE(Relu, "relu")             \
  CODE(Elu, "elu")               \
  CODE(Selu, "selu")             \
  CODE(Gelu, "gelu")             \
  CODE(LeakyRelu, "leaky_relu")  \
  CODE(Hardshrink, "hardshrink") \
  CODE(Mish, "mish")

#define SHOAL_OPTIMIZERS(CODE) \
  CODE(Sgd, "sgd")             \
  CODE(Adam, "adam")           \
  CODE(AdamW, "adamw")

#define SHOAL_SCHEDULES(CODE) \
  CODE(Constant, "constant")  \
  CODE(Cosine, "cosine")

#define SHOAL_INITS(CODE)  \
  CODE(TorchInit, "torch") \
  CODE(GlorotInit, "glorot")

#define SHOAL_LOSSES(CODE)            \
  CODE(CrossEntropy, "cross_entropy") \
  CODE(BinaryCrossEntropy, "bce")     \
  CODE(SquaredError, "mse")

#define SHOAL_STATUSES(CODE)     \
  CODE(Active, "active")         \
  CODE(Finished, "finished")     \
  CODE(Stopped, "stopped early") \
  CODE(Diverged, "diverged")

namespace shoal {

#define SHOAL_ENUMERATOR(name, word) name,
enum Activation : int32_t { SHOAL_ACTIVATIONS(SHOAL_ENUMERATOR) ActivationCount };
enum Optimizer : int32_t { SHOAL_OPTIMIZERS(SHOAL_ENUMERATOR) OptimizerCount };
enum Schedule : int32_t { SHOAL_SCHEDULES(SHOAL_ENUMERATOR) ScheduleCount };
enum Init : int32_t { SHOAL_INITS(SHOAL_ENUMERATOR) InitCount };
enum Loss : int32_t { SHOAL_LOSSES(SHOAL_ENUMERATOR) LossCount };
enum Status : uint8_t { SHOAL_STATUSES(SHOAL_ENUMERATOR) StatusCount };
#undef SHOAL_ENUMERATOR

}  // namespace shoal
