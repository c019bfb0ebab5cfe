// What the loops share: products of 16 rows with matrices that stay in registers, sums
// over the threads, blocks and clusters that hold a row, and elementwise functions.
//
// A cluster of 8 blocks with 8 warps each works on 16 rows. Block b has slice b of the
// recurrent state. A product [16, 8] lies in a warp as the matrix units leave it: a
// thread has columns 2q and 2q + 1 of rows g and g + 8, with g = lane / 4, q = lane % 4.

#define ROWS 16
#define WARPS 8
#define THREADS 256
#define BLOCKS 8
#define SLICE (DETER / BLOCKS)
#define FLAT (STOCH * CLASSES)
#define JOINT (2 * HIDDEN)
#define EPS 1e-4f

// Words per row in shared memory: 4 more than needed, so that a warp that reads 8 rows
// meets each of the 32 banks once.
#define PITCH(columns) ((columns) / 2 + 4)

struct Place {
  int thread, warp, lane, g, q, rank, cluster;
};

DEVICE Place find_place() {
  Place p;
  p.thread = thread_index();
  p.warp = p.thread / 32;
  p.lane = p.thread % 32;
  p.g = p.lane / 4;
  p.q = p.lane % 4;
  p.rank = cluster_rank();
  p.cluster = block_index() / BLOCKS;
  return p;
}

// The part of a matrix [K, 8 * TILES] that a thread multiplies with.
template <int TILES, int K>
struct Matrix {
  u32 part[TILES][K / 16][2];
};

// Takes columns first + tile * stride ... + 8 of a matrix with `width` columns.
template <int TILES, int K>
DEVICE void load(Matrix<TILES, K>& m, const Place& p, const u16* w, int width,
                 int first, int stride) {
  UNROLL for (int tile = 0; tile < TILES; tile++)
    UNROLL for (int k = 0; k < K / 16; k++)
      UNROLL for (int half = 0; half < 2; half++) {
        const u16* at = w + (k * 16 + half * 8 + 2 * p.q) * width;
        at += first + tile * stride + p.g;
        m.part[tile][k][half] = at[0] | (u32)at[width] << 16;
      }
}

// The same of the transposed matrix: rows first + tile * stride ... + 8 of w.
template <int TILES, int K>
DEVICE void load_transposed(Matrix<TILES, K>& m, const Place& p, const u16* w,
                            int width, int first, int stride) {
  UNROLL for (int tile = 0; tile < TILES; tile++)
    UNROLL for (int k = 0; k < K / 16; k++)
      UNROLL for (int half = 0; half < 2; half++) {
        const u16* at = w + (first + tile * stride + p.g) * width;
        m.part[tile][k][half] = *(const u32*)(at + k * 16 + half * 8 + 2 * p.q);
      }
}

template <int TILES>
struct Product {
  float part[TILES][4];
};

template <int TILES>
DEVICE void clear(Product<TILES>& x) {
  UNROLL for (int tile = 0; tile < TILES; tile++)
    UNROLL for (int i = 0; i < 4; i++) x.part[tile][i] = 0;
}

// sum += rows [16, K] * m. Two sums where there is one tile: the units take 30 cycles
// for a product, and the next one with the same sum waits for it.
template <int TILES, int K>
DEVICE void multiply(Product<TILES>& sum, const Place& p, const u32* rows, int pitch,
                     const Matrix<TILES, K>& m) {
  Product<TILES> other;
  clear(other);
  UNROLL for (int k = 0; k < K / 16; k++) {
    const u32* at = rows + p.g * pitch + k * 8 + p.q;
    u32 a[4] = {at[0], at[8 * pitch], at[4], at[8 * pitch + 4]};
    UNROLL for (int tile = 0; tile < TILES; tile++)
      multiply_add((TILES == 1 && k % 2 ? other : sum).part[tile], a, m.part[tile][k]);
  }
  if (TILES == 1)
    UNROLL for (int i = 0; i < 4; i++) sum.part[0][i] += other.part[0][i];
}

DEVICE void store_pair(u32* rows, int pitch, const Place& p, int column,
                       const float (&x)[4]) {
  rows[p.g * pitch + column / 2 + p.q] = pack(x[0], x[1]);
  rows[(p.g + 8) * pitch + column / 2 + p.q] = pack(x[2], x[3]);
}

// Sums over the 4 threads with the same rows, for rows g and g + 8.
DEVICE void sum_quad(float (&x)[2]) {
  UNROLL for (int i = 0; i < 2; i++) {
    x[i] += exchange(x[i], 1);
    x[i] += exchange(x[i], 2);
  }
}

// Sums over all columns of a block, for rows g and g + 8: after put_sums and block_sync.
// sums: [WARPS][16].
DEVICE void put_sums(float (&x)[2], const Place& p, float* sums) {
  sum_quad(x);
  if (p.q == 0) {
    sums[p.warp * 16 + p.g] = x[0];
    sums[p.warp * 16 + p.g + 8] = x[1];
  }
}

DEVICE void take_sums(float (&x)[2], const Place& p, const float* sums) {
  x[0] = x[1] = 0;
  UNROLL for (int warp = 0; warp < WARPS; warp++) {
    x[0] += sums[warp * 16 + p.g];
    x[1] += sums[warp * 16 + p.g + 8];
  }
}

DEVICE void sum_block(float (&x)[2], const Place& p, float* sums) {
  put_sums(x, p, sums);
  block_sync();
  take_sums(x, p, sums);
}

// Sums over the columns of all blocks: after put_sums, block_sync, send_sums and a
// barrier of the cluster. all: [BLOCKS][16], filled by the others.
DEVICE void send_sums(const Place& p, const float* sums, float* all) {
  if (p.thread < BLOCKS * 16) {
    int row = p.thread % 16;
    float sum = 0;
    UNROLL for (int warp = 0; warp < WARPS; warp++) sum += sums[warp * 16 + row];
    push(all + p.rank * 16 + row, p.thread / 16, sum);
  }
}

DEVICE void sum_cluster(float (&x)[2], const Place& p, float* sums, float* all) {
  put_sums(x, p, sums);
  block_sync();
  send_sums(p, sums, all);
  cluster_arrive();
  cluster_wait();
  take_sums(x, p, all);
}

// Sends the partial product [16, 16] of warp w to block w. parts: [BLOCKS][ROWS][16].
DEVICE void scatter(const Product<2>& x, const Place& p, float* parts) {
  UNROLL for (int tile = 0; tile < 2; tile++) {
    float* at = parts + (p.rank * ROWS + p.g) * 16 + tile * 8 + 2 * p.q;
    push(at, p.warp, x.part[tile][0], x.part[tile][1]);
    push(at + 8 * 16, p.warp, x.part[tile][2], x.part[tile][3]);
  }
}

// Adds up what was scattered: row thread / 16, column 16 * rank + thread % 16.
DEVICE float gather_sum(const Place& p, const float* parts) {
  float sum = 0;
  UNROLL for (int block = 0; block < BLOCKS; block++)
    sum += parts[block * ROWS * 16 + p.thread];
  return sum;
}

// Sends such sums to all blocks. whole: [ROWS][PITCH(JOINT)] pairs.
DEVICE void spread(float sum, const Place& p, u32* whole) {
  float beside = exchange(sum, 1);
  bool odd = p.thread % 2;
  u32 pair = odd ? pack(beside, sum) : pack(sum, beside);
  int row = p.thread / 16, column = 16 * p.rank + p.thread % 16;
  UNROLL for (int i = 0; i < BLOCKS / 2; i++)
    push(whole + row * PITCH(JOINT) + column / 2, odd * (BLOCKS / 2) + i, pair);
}

// Sends a block's part of the product of all rows with m to the blocks that add it up.
template <int K>
DEVICE void send_parts(const Place& p, const u32* rows, const Matrix<2, K>& m,
                       float* parts) {
  Product<2> part;
  clear(part);
  multiply(part, p, rows, PITCH(SLICE), m);
  scatter(part, p, parts);
  cluster_arrive();
}

// Each block adds up a few columns of what was sent, and gives the sums to all.
DEVICE void share_sums(const Place& p, const float* parts, u32* whole) {
  cluster_wait();
  spread(gather_sum(p, parts), p, whole);
  cluster_arrive();
  cluster_wait();
}

DEVICE float sigmoid(float x) { return divide(1.0f, 1.0f + exponential(-x)); }
DEVICE float silu(float x) { return x * sigmoid(x); }
DEVICE float tangent(float x) { return 2 * sigmoid(2 * x) - 1; }
DEVICE float rounded(float x) { return low(pack(x, 0)); }

// A unit of the recurrent state from the sums of its three gates.
DEVICE float next_deter(float reset, float cand, float update, float deter) {
  cand = tangent(sigmoid(reset) * cand);
  update = sigmoid(update - 1);
  return rounded(update * cand + (1 - update) * deter);
}

// One-hot samples of 4 classes, of which a thread has two and its neighbor the others.
DEVICE void sample(const float (&logit)[2], const float (&noise)[2], int q,
                   float (&onehot)[2]) {
  float most = fmaxf(logit[0], logit[1]);
  most = fmaxf(most, exchange(most, 1));
  float e[2] = {exponential(logit[0] - most), exponential(logit[1] - most)};
  float total = e[0] + e[1];
  total += exchange(total, 1);
  float score[2];
  UNROLL for (int i = 0; i < 2; i++)
    score[i] = logarithm((1 - UNIMIX) * divide(e[i], total) + UNIMIX / CLASSES) + noise[i];
  float top = fmaxf(score[0], score[1]);
  top = fmaxf(top, exchange(top, 1)) - 1e-5f;
  int base = q % 2 * 2;
  int first = score[0] >= top ? base : score[1] >= top ? base + 1 : CLASSES;
  int other = exchange(first, 1);
  first = first < other ? first : other;
  onehot[0] = first == base;
  onehot[1] = first == base + 1;
}

DEVICE void unpack(float (&x)[8], const u32 (&pairs)[4]) {
  UNROLL for (int i = 0; i < 4; i++) {
    x[2 * i] = low(pairs[i]);
    x[2 * i + 1] = high(pairs[i]);
  }
}

DEVICE void read4(u32 (&x)[4], const void* from) {
  uint4 all = *(const uint4*)from;
  x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
}

DEVICE void read8(float (&x)[8], const float* from) {
  float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
  x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
