// What imagine.cu is built from: its memory, and layers on all rows of a cluster.

#undef ROWS
#define ROWS (16 * TALL)
#define ACTIONS 32  // room for an action vector
#define INPUTS (3 * HIDDEN)
#define OUTPUTS (3 * HIDDEN)  // products of deter: prior, next step's input, policy
#define WORDS 132  // per row of those: 8 blocks with 4 words of each of 4 threads, and 4

struct Layer {
  float bias[HIDDEN], scale[HIDDEN];
};

// Vectors: in shared memory, as registers are full of matrices.
struct Vectors {
  Layer deter_in, stoch_in, action_in, policy[3], prior[2];
  float head_bias[2 * ACTIONS], hidden_bias[SLICE], hidden_scale[SLICE];
  float gru_bias[3 * SLICE], logit_bias[FLAT];
};

struct Memory {
  Vectors vectors;
  // Matrices for which no registers are left: [warp][part][lane].
  u32 stoch_out[WARPS * 2 * (FLAT / 16) * 2 * 32];
  u32 prior_logit[WARPS * 2 * (HIDDEN / 16) * 2 * 32];
  u32 inputs[ROWS * PITCH(INPUTS)];
  u32 stoch[ROWS * PITCH(FLAT)];
  u32 deter[ROWS * PITCH(SLICE)];
  u32 hidden[ROWS * PITCH(SLICE)];
  u32 layer[ROWS * PITCH(HIDDEN)];  // what a layer takes, and then what it gives
  u32 action[ROWS * PITCH(ACTIONS)];
  u32 whole[ROWS * WORDS];
  u32 parts[BLOCKS * ROWS * 16];
  float head[ROWS * (2 * ACTIONS + 1)];
  float sums[3][TALL][WARPS * 16];
  float squares[TALL][BLOCKS * 16];
};

// Keeps a part of a matrix in shared memory, and takes it back.
template <int TILES, int K>
DEVICE void keep(u32* to, const Place& p, const Matrix<TILES, K>& m) {
  UNROLL for (int tile = 0; tile < TILES; tile++)
    UNROLL for (int k = 0; k < K / 16; k++)
      UNROLL for (int half = 0; half < 2; half++)
        to[(((p.warp * TILES + tile) * (K / 16) + k) * 2 + half) * 32 + p.lane] =
            m.part[tile][k][half];
}

template <int TILES, int K>
DEVICE void recall(Matrix<TILES, K>& m, const Place& p, const u32* from) {
  UNROLL for (int tile = 0; tile < TILES; tile++)
    UNROLL for (int k = 0; k < K / 16; k++)
      UNROLL for (int half = 0; half < 2; half++)
        m.part[tile][k][half] =
            from[(((p.warp * TILES + tile) * (K / 16) + k) * 2 + half) * 32 + p.lane];
}

DEVICE void copy(float* to, const float* from, int size, const Place& p) {
  for (int i = p.thread; i < size; i += THREADS) to[i] = from[i];
}

// Adds the bias of a layer and puts the sums of squares of its rows.
DEVICE void begin_norm(float (&x)[4], const Place& p, const float* bias, float* sums) {
  const int column = 8 * p.warp + 2 * p.q;
  float squares[2] = {0, 0};
  UNROLL for (int i = 0; i < 4; i++) {
    x[i] += bias[column + i % 2];
    squares[i / 2] += x[i] * x[i];
  }
  put_sums(squares, p, sums);
}

// Takes the sums, and stores norm and SiLU.
DEVICE void end_norm(float (&x)[4], const Place& p, const float* scale,
                     const float* sums, int size, u32* rows, int pitch, int first) {
  const int column = 8 * p.warp + 2 * p.q;
  float squares[2];
  take_sums(squares, p, sums);
  UNROLL for (int half = 0; half < 2; half++)
    squares[half] = inverse_root(squares[half] / size + EPS);
  UNROLL for (int i = 0; i < 4; i++)
    x[i] = silu(x[i] * squares[i / 2] * scale[column + i % 2]);
  store_pair(rows, pitch, p, first + 8 * p.warp, x);
}

// A layer applied to m.layer. Before and after: block_sync.
DEVICE void apply(Memory& m, const Place& p, const Matrix<1, HIDDEN>& w,
                  const Layer& layer) {
  Product<1> x[TALL];
  UNROLL for (int tall = 0; tall < TALL; tall++) {
    clear(x[tall]);
    multiply(x[tall], p, m.layer + tall * 16 * PITCH(HIDDEN), PITCH(HIDDEN), w);
    begin_norm(x[tall].part[0], p, layer.bias, m.sums[0][tall]);
  }
  block_sync();
  UNROLL for (int tall = 0; tall < TALL; tall++)
    end_norm(x[tall].part[0], p, layer.scale, m.sums[0][tall], HIDDEN,
             m.layer + tall * 16 * PITCH(HIDDEN), PITCH(HIDDEN), 0);
  block_sync();
}

// The pair of columns 8 * tile + 2q of a row, of what the blocks have handed around.
DEVICE u32 product_of(const Memory& m, int row, int tile, int q) {
  return m.whole[row * WORDS + tile / 3 * 16 + q * 4 + tile % 3];
}
