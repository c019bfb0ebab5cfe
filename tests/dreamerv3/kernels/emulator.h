// The functions of device.cuh for a host without a GPU, and a launch of a kernel.
//
// Every thread of a cluster is a fiber. It runs until it waits for others: a warp, a
// block or the cluster. Which of those that can go on is next is drawn at random, so
// that a missing barrier shows as a wrong result for some seed.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <tuple>
#include <utility>
#include <vector>

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { u32 x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }

#define __constant__
#define KERNEL(threads, blocks) \
  extern "C" const int kernel_threads = threads, kernel_blocks = blocks; \
  static void
#define DEVICE static inline
#define UNROLL

namespace emulator {

struct Barrier {
  int count = 0, arrived = 0;
  unsigned generation = 0;
};

struct Warp {
  Barrier barrier;
  u32 words[2][32][6];
};

struct Block {
  Barrier barrier;
  std::vector<char> memory;
};

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  int thread, block, phase = 0;
  Barrier* waits = nullptr;
  unsigned generation = 0, cluster_generation = 0;
  bool done = false;
};

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static std::vector<Block> blocks;
static Barrier cluster;
static Fiber* current;
static int first_block, threads;
static void (*body)();

static void arrive(Barrier& barrier) {
  if (++barrier.arrived == barrier.count) barrier.arrived = 0, barrier.generation++;
}

static void wait(Barrier& barrier, unsigned generation) {
  if (barrier.generation != generation) return;
  current->waits = &barrier, current->generation = generation;
  swapcontext(&current->context, &scheduler);
}

static void meet(Barrier& barrier) {
  unsigned generation = barrier.generation;
  arrive(barrier);
  wait(barrier, generation);
}

static Warp& warp() { return warps[(current->block * threads + current->thread) / 32]; }

static void enter() {
  body();
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

// Runs one cluster to its end; false if its threads wait for each other forever.
static bool run_cluster(int count, int size, int bytes) {
  threads = size;
  blocks.assign(count, Block());
  warps.assign(count * size / 32, Warp());
  fibers = std::vector<Fiber>(count * size);
  cluster = Barrier();
  cluster.count = count * size;
  for (auto& x : blocks) x.barrier.count = size, x.memory.assign(bytes + 64, 0x7f);
  for (auto& x : warps) x.barrier.count = 32;
  for (int i = 0; i < count * size; i++) {
    Fiber& x = fibers[i];
    x.block = i / size, x.thread = i % size;
    x.stack.resize(128 << 10);
    getcontext(&x.context);
    x.context.uc_stack.ss_sp = x.stack.data();
    x.context.uc_stack.ss_size = x.stack.size();
    makecontext(&x.context, enter, 0);
  }
  std::vector<int> order(fibers.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  for (;;) {
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[rand() % i]);
    bool moved = false, done = true;
    for (int i : order) {
      Fiber& x = fibers[i];
      if (x.done) continue;
      done = false;
      if (x.waits && x.waits->generation == x.generation) continue;
      x.waits = nullptr, moved = true, current = &x;
      swapcontext(&scheduler, &x.context);
    }
    if (done) return true;
    if (!moved) return false;
  }
}

}  // namespace emulator

static int thread_index() { return emulator::current->thread; }
static int block_index() { return emulator::first_block + emulator::current->block; }
static int cluster_rank() { return emulator::current->block; }

static char* block_memory() {
  uintptr_t at = (uintptr_t)emulator::blocks[emulator::current->block].memory.data();
  return (char*)((at + 15) / 16 * 16);
}

static void block_sync() {
  emulator::meet(emulator::blocks[emulator::current->block].barrier);
}

static void cluster_arrive() {
  emulator::current->cluster_generation = emulator::cluster.generation;
  emulator::arrive(emulator::cluster);
}

static void cluster_wait() {
  emulator::wait(emulator::cluster, emulator::current->cluster_generation);
}

template <typename T>
static T* remote(T* place, int rank) {
  char* there = emulator::blocks[rank].memory.data();
  there = (char*)(((uintptr_t)there + 15) / 16 * 16);
  return (T*)(there + ((char*)place - block_memory()));
}

static void push(u32* place, int rank, u32 x) { *remote(place, rank) = x; }
static void push(float* place, int rank, float x) { *remote(place, rank) = x; }
static void push(float* place, int rank, float x, float y) {
  remote(place, rank)[0] = x, remote(place, rank)[1] = y;
}
static void push(u32* place, int rank, u32 x, u32 y, u32 z, u32 w) {
  u32* at = remote(place, rank);
  at[0] = x, at[1] = y, at[2] = z, at[3] = w;
}

// All threads of a warp hand in words and then see those of each other.
template <int N>
static u32 (*together(const u32 (&own)[N]))[6] {
  emulator::Warp& warp = emulator::warp();
  auto& words = warp.words[emulator::current->phase ^= 1];
  for (int i = 0; i < N; i++) words[emulator::current->thread % 32][i] = own[i];
  emulator::meet(warp.barrier);
  return words;
}

template <typename T>
static T exchange(T x, int mask) {
  u32 own[1];
  memcpy(own, &x, 4);
  auto words = together(own);
  memcpy(&x, words[(emulator::current->thread % 32) ^ mask], 4);
  return x;
}

static u32 to_bfloat16(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float from_bits(u32 bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

static u32 pack(float low, float high) {
  return to_bfloat16(low) | to_bfloat16(high) << 16;
}

static float low(u32 pair) { return from_bits(pair << 16); }
static float high(u32 pair) { return from_bits(pair & 0xffff0000u); }

static float exponential(float x) { return expf(x); }
static float logarithm(float x) { return logf(x); }
static float inverse_root(float x) { return 1 / sqrtf(x); }
static float divide(float x, float y) { return x / y; }

static float half_of(u32 pair, int odd) { return odd ? high(pair) : low(pair); }

static void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  u32 own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  auto words = together(own);
  int lane = emulator::current->thread % 32, g = lane / 4, q = lane % 4;
  for (int i = 0; i < 4; i++) {
    int row = g + 8 * (i / 2), column = 2 * q + i % 2;
    for (int k = 0; k < 16; k++) {
      // As the manual of PTX lays out the operands of mma.m16n8k16.
      int pair = k % 8 / 2;
      u32 left = words[row % 8 * 4 + pair][row / 8 + k / 8 * 2];
      u32 right = words[column * 4 + pair][4 + k / 8];
      sum[i] += half_of(left, k % 2) * half_of(right, k % 2);
    }
  }
}

// Runs a kernel over `clusters` clusters: arguments are the addresses of its arrays.
template <typename... T>
struct Launch {
  static inline std::tuple<T...> arguments;
  static inline void (*kernel)(T...);

  template <size_t... I>
  static void take(void** from, std::index_sequence<I...>) {
    arguments = std::make_tuple((T)from[I]...);
  }

  static bool run(void (*which)(T...), void** from, int clusters, int count, int size,
                  int bytes, unsigned seed) {
    kernel = which;
    take(from, std::index_sequence_for<T...>());
    emulator::body = [] { std::apply(kernel, arguments); };
    srand(seed);
    for (int i = 0; i < clusters; i++) {
      emulator::first_block = i * count;
      if (!emulator::run_cluster(count, size, bytes)) return false;
    }
    return true;
  }
};

template <typename... T>
static bool launch(void (*kernel)(T...), void** arguments, int clusters, int count,
                   int size, int bytes, unsigned seed) {
  return Launch<T...>::run(kernel, arguments, clusters, count, size, bytes, seed);
}
