// Follows recorded steps: RSSM._observe_step for all steps in one launch.
//
// Three times per step the blocks of a cluster wait for each other: for the mean square
// of the hidden layer, to add up the products of their slices of the state, and to hand
// the sums around. The rest, sampling included, each block does for itself.

struct Memory {
  u32 inputs[ROWS * PITCH(JOINT)];  // of the hidden layer: from deter, from stoch
  u32 stoch[ROWS * PITCH(FLAT)];
  u32 deter[ROWS * PITCH(SLICE)];
  u32 hidden[ROWS * PITCH(SLICE)];
  u32 post[ROWS * PITCH(HIDDEN)];
  u32 whole[ROWS * PITCH(JOINT)];  // products of deter: next step's input, posterior
  float parts[BLOCKS * ROWS * 16];
  float sums[WARPS * ROWS];
  float squares[BLOCKS * ROWS];
  u8 resets[(STEPS + 1) * ROWS];
};

KERNEL(THREADS, BLOCKS)
observe_forward(
    // Matrices, as RSSM.kernels(dense=False) has them.
    const u16* stoch_in, const u16* hidden_own, const u16* hidden_shared,
    const u16* gru, const u16* deter_out, const u16* post_logit,
    // Biases of all input layers, scales of all input layers [2, HIDDEN], and the rest.
    const float* input_bias, const float* input_scale, const float* hidden_scale,
    const float* gru_bias, const float* post_scale, const float* logit_bias,
    // The carry before the first step [BATCH, ...].
    const u16* first_deter, const u16* first_stoch, const u16* first_drive,
    // Inputs [STEPS, BATCH, ...].
    const u16* action_drive, const u16* token_drive, const u8* reset,
    const float* gumbel,
    // Results [STEPS, BATCH, ...].
    u16* out_deter, u16* out_stoch, u16* out_drive, float* out_logit) {
  Memory& m = *(Memory*)block_memory();
  const Place p = find_place();
  const int begin = p.cluster * ROWS;  // the first row of this cluster

  // Weights, for all steps.
  Matrix<1, FLAT> w_stoch;
  Matrix<1, SLICE> w_own;
  Matrix<1, JOINT> w_shared;
  Matrix<3, SLICE> w_gru;
  Matrix<2, SLICE> w_out;
  Matrix<2, HIDDEN> w_logit;
  load(w_stoch, p, stoch_in, HIDDEN, 8 * p.warp, 8);
  load(w_own, p, hidden_own + p.rank * SLICE * SLICE, SLICE, 8 * p.warp, 8);
  load(w_shared, p, hidden_shared, DETER, p.rank * SLICE + 8 * p.warp, 8);
  load(w_gru, p, gru + p.rank * SLICE * 3 * SLICE, 3 * SLICE, 8 * p.warp, SLICE);
  load(w_out, p, deter_out + p.rank * SLICE * JOINT, JOINT, 16 * p.warp, 8);
  load(w_logit, p, post_logit, FLAT, 16 * p.warp, 8);

  // What a thread needs of the vectors, for columns 8 * warp + 2q and the next one.
  const int column = 8 * p.warp + 2 * p.q;
  float b_stoch[2], s_stoch[2], s_hidden[2], b_gru[3][2], b_logit[2][2];
  UNROLL for (int i = 0; i < 2; i++) {
    b_stoch[i] = rounded(input_bias[HIDDEN + column + i]);
    s_stoch[i] = input_scale[HIDDEN + column + i];
    s_hidden[i] = hidden_scale[p.rank * SLICE + column + i];
    UNROLL for (int gate = 0; gate < 3; gate++)
      b_gru[gate][i] = rounded(gru_bias[(p.rank * 3 + gate) * SLICE + column + i]);
    UNROLL for (int tile = 0; tile < 2; tile++)
      b_logit[tile][i] = rounded(logit_bias[16 * p.warp + 8 * tile + 2 * p.q + i]);
  }
  // Half of the threads take the posterior's norm, the others that of the next input:
  // 8 columns of a row each.
  const bool posterior = p.thread < 128;
  const int own_row = p.thread % 128 / 8, own_column = p.thread % 8 * 8;
  float b_own[8], s_own[8];
  read8(s_own, (posterior ? post_scale : input_scale) + own_column);
  read8(b_own, input_bias + own_column);
  UNROLL for (int i = 0; i < 8; i++) b_own[i] = rounded(b_own[i]);

  auto normalize_own = [&](int step, const u32(&tokens)[4]) {
    float x[8], add[8];
    u32 pairs[4];
    read4(pairs, m.whole + own_row * PITCH(JOINT) + (posterior * HIDDEN + own_column) / 2);
    unpack(x, pairs);
    unpack(add, tokens);
    bool forget = !posterior && m.resets[step * ROWS + own_row];
    float square = 0;
    UNROLL for (int i = 0; i < 8; i++) {
      x[i] = posterior ? x[i] + add[i] : (forget ? 0 : x[i]) + b_own[i];
      square += x[i] * x[i];
    }
    UNROLL for (int mask = 1; mask < 8; mask *= 2) square += exchange(square, mask);
    float inverse = inverse_root(square / HIDDEN + EPS);
    u32* to = posterior ? m.post + own_row * PITCH(HIDDEN)
                        : m.inputs + own_row * PITCH(JOINT);
    UNROLL for (int i = 0; i < 4; i++)
      to[own_column / 2 + i] = pack(silu(x[2 * i] * inverse * s_own[2 * i]),
                                    silu(x[2 * i + 1] * inverse * s_own[2 * i + 1]));
  };

  // The carry.
  for (int i = p.thread; i < (STEPS + 1) * ROWS; i += THREADS)
    m.resets[i] = i < STEPS * ROWS ? reset[i / ROWS * BATCH + begin + i % ROWS] : 0;
  float deter[4];
  UNROLL for (int half = 0; half < 2; half++) {
    int at = (begin + p.g + 8 * half) * DETER + p.rank * SLICE + column;
    u32 pair = *(const u32*)(first_deter + at);
    deter[2 * half] = low(pair), deter[2 * half + 1] = high(pair);
  }
  store_pair(m.deter, PITCH(SLICE), p, 8 * p.warp, deter);
  block_sync();
  {
    u32 pairs[4];
    int row = p.thread / 16, first = p.thread % 16 * 8;
    read4(pairs, first_stoch + (begin + row) * FLAT + first);
    UNROLL for (int i = 0; i < 4; i++)
      m.stoch[row * PITCH(FLAT) + first / 2 + i] = m.resets[row] ? 0 : pairs[i];
    if (!posterior) {
      read4(pairs, first_drive + (begin + own_row) * HIDDEN + own_column);
      UNROLL for (int i = 0; i < 4; i++)
        m.whole[own_row * PITCH(JOINT) + own_column / 2 + i] = pairs[i];
    } else {
      UNROLL for (int i = 0; i < 4; i++)
        m.whole[own_row * PITCH(JOINT) + (HIDDEN + own_column) / 2 + i] = 0;
    }
    block_sync();
    const u32 none[4] = {0, 0, 0, 0};
    normalize_own(0, none);
  }
  Product<1> own;
  clear(own);
  multiply(own, p, m.deter, PITCH(SLICE), w_own);
  u32 action[2];
  auto take_action = [&](int step) {
    UNROLL for (int half = 0; half < 2; half++) {
      int row = step * BATCH + begin + p.g + 8 * half;
      action[half] = *(const u32*)(action_drive + row * DETER + p.rank * SLICE + column);
    }
  };
  take_action(0);
  // All blocks run before one writes into another.
  cluster_arrive();
  cluster_wait();

  for (int step = 0; step < STEPS; step++) {
    const int first_row = step * BATCH + begin;
    // Needed at the end of this step only: on their way until then.
    float noise[2][2][2];
    UNROLL for (int tile = 0; tile < 2; tile++)
      UNROLL for (int half = 0; half < 2; half++) {
        int at = (first_row + p.g + 8 * half) * FLAT + 16 * p.warp + 8 * tile + 2 * p.q;
        float2 pair = *(const float2*)(gumbel + at);
        noise[tile][half][0] = pair.x, noise[tile][half][1] = pair.y;
      }
    u32 tokens[4];
    read4(tokens, token_drive + (first_row + own_row) * HIDDEN + own_column);
    const bool forget[2] = {m.resets[step * ROWS + p.g] != 0,
                            m.resets[step * ROWS + p.g + 8] != 0};

    // Input from stoch.
    block_sync();
    Product<1> x;
    clear(x);
    multiply(x, p, m.stoch, PITCH(FLAT), w_stoch);
    float squares[2] = {0, 0};
    UNROLL for (int i = 0; i < 4; i++) {
      x.part[0][i] += b_stoch[i % 2];
      squares[i / 2] += x.part[0][i] * x.part[0][i];
    }
    sum_block(squares, p, m.sums);
    UNROLL for (int half = 0; half < 2; half++)
      squares[half] = inverse_root(squares[half] / HIDDEN + EPS);
    UNROLL for (int i = 0; i < 4; i++)
      x.part[0][i] = silu(x.part[0][i] * squares[i / 2] * s_stoch[i % 2]);
    store_pair(m.inputs, PITCH(JOINT), p, HIDDEN + 8 * p.warp, x.part[0]);
    block_sync();

    // Hidden layer.
    UNROLL for (int half = 0; half < 2; half++) {
      x.part[0][2 * half] = low(action[half]) + (forget[half] ? 0 : own.part[0][2 * half]);
      x.part[0][2 * half + 1] =
          high(action[half]) + (forget[half] ? 0 : own.part[0][2 * half + 1]);
    }
    if (step + 1 < STEPS) take_action(step + 1);
    multiply(x, p, m.inputs, PITCH(JOINT), w_shared);
    squares[0] = squares[1] = 0;
    UNROLL for (int i = 0; i < 4; i++)
      squares[i / 2] += x.part[0][i] * x.part[0][i];
    sum_cluster(squares, p, m.sums, m.squares);
    UNROLL for (int half = 0; half < 2; half++)
      squares[half] = inverse_root(squares[half] / DETER + EPS);
    UNROLL for (int i = 0; i < 4; i++)
      x.part[0][i] = silu(x.part[0][i] * squares[i / 2] * s_hidden[i % 2]);
    store_pair(m.hidden, PITCH(SLICE), p, 8 * p.warp, x.part[0]);
    block_sync();

    // Gates.
    Product<3> gates;
    clear(gates);
    multiply(gates, p, m.hidden, PITCH(SLICE), w_gru);
    UNROLL for (int i = 0; i < 4; i++) {
      deter[i] = next_deter(gates.part[0][i] + b_gru[0][i % 2],
                            gates.part[1][i] + b_gru[1][i % 2],
                            gates.part[2][i] + b_gru[2][i % 2],
                            forget[i / 2] ? 0 : deter[i]);
    }
    store_pair(m.deter, PITCH(SLICE), p, 8 * p.warp, deter);
    UNROLL for (int half = 0; half < 2; half++) {
      int at = (first_row + p.g + 8 * half) * DETER + p.rank * SLICE + column;
      *(u32*)(out_deter + at) = pack(deter[2 * half], deter[2 * half + 1]);
    }
    block_sync();

    // Products of the new state: a block has a part of each, then all of a few.
    send_parts(p, m.deter, w_out, m.parts);
    clear(own);
    multiply(own, p, m.deter, PITCH(SLICE), w_own);
    share_sums(p, m.parts, m.whole);
    if (p.rank == 0 && !posterior) {
      u32 pairs[4];
      read4(pairs, m.whole + own_row * PITCH(JOINT) + own_column / 2);
      u32* to = (u32*)(out_drive + (first_row + own_row) * HIDDEN + own_column);
      UNROLL for (int i = 0; i < 4; i++) to[i] = pairs[i];
    }
    normalize_own(step + 1, tokens);
    block_sync();

    // Posterior.
    Product<2> logits;
    clear(logits);
    multiply(logits, p, m.post, PITCH(HIDDEN), w_logit);
    UNROLL for (int tile = 0; tile < 2; tile++)
      UNROLL for (int half = 0; half < 2; half++) {
        float logit[2], onehot[2];
        UNROLL for (int i = 0; i < 2; i++)
          logit[i] = logits.part[tile][2 * half + i] + b_logit[tile][i];
        sample(logit, noise[tile][half], p.q, onehot);
        int row = p.g + 8 * half, first = 16 * p.warp + 8 * tile + 2 * p.q;
        bool forgotten = m.resets[(step + 1) * ROWS + row];
        u32 pair = pack(onehot[0], onehot[1]);
        m.stoch[row * PITCH(FLAT) + first / 2] = forgotten ? 0 : pair;
        if (p.warp == p.rank) {
          int at = (first_row + row) * FLAT + first;
          *(u32*)(out_stoch + at) = pair;
          *(float2*)(out_logit + at) = make_float2(logit[0], logit[1]);
        }
      }
  }
}
