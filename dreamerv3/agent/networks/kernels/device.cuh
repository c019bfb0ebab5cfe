// The instructions of the device that the kernels are written with.
//
// tests/dreamerv3/kernels/emulator.h has the same functions for a host without a GPU.

typedef unsigned int u32;       // two bfloat16, the first in the lower half
typedef unsigned short u16;     // the bits of a bfloat16
typedef unsigned char u8;

#define KERNEL(threads, blocks) \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) \
      __launch_bounds__(threads, 1)
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }

DEVICE char* block_memory() {
  extern __shared__ __align__(16) char memory[];
  return memory;
}

DEVICE void block_sync() { __syncthreads(); }

DEVICE int cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Everything written before the arrival is visible to all blocks after the wait.
DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address that a place in shared memory has in another block of the cluster.
DEVICE u32 remote(const void* place, int rank) {
  u32 here = (u32)__cvta_generic_to_shared(place), there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"(here), "r"(rank));
  return there;
}

DEVICE void push(void* place, int rank, u32 x) {
  asm volatile("st.shared::cluster.u32 [%0], %1;"
               :: "r"(remote(place, rank)), "r"(x) : "memory");
}

DEVICE void push(void* place, int rank, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;"
               :: "r"(remote(place, rank)), "f"(x) : "memory");
}

DEVICE void push(void* place, int rank, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};"
               :: "r"(remote(place, rank)), "f"(x), "f"(y) : "memory");
}

DEVICE void push(void* place, int rank, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "r"(remote(place, rank)), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

DEVICE float exchange(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

DEVICE int exchange(int x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

DEVICE u32 pack(float low, float high) {
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

DEVICE float exponential(float x) { return __expf(x); }
DEVICE float logarithm(float x) { return __logf(x); }
DEVICE float inverse_root(float x) { return rsqrtf(x); }
DEVICE float divide(float x, float y) { return __fdividef(x, y); }

// sum [16, 8] += a [16, 16] * b [16, 8], spread over the 32 threads of a warp.
DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
