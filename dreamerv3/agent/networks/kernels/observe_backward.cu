// The gradients of the states in RSSM.observe: the backward loop of recurrence.scan for
// all steps in one launch. The slopes of norms and samples and the values of the gates
// are known. The blocks of a cluster wait for each other as in observe_forward.cu.

#define GATES (3 * SLICE)

struct Memory {
  u32 logit[ROWS * PITCH(FLAT)];   // gradients of the logits
  u32 out[ROWS * PITCH(JOINT)];    // of the products of deter: next input, posterior
  u32 gates[ROWS * PITCH(GATES)];
  u32 hidden[ROWS * PITCH(SLICE)];  // of the hidden layer before its norm
  u32 stoch[ROWS * PITCH(HIDDEN)];  // of the product of stoch with its input layer
  u32 whole[ROWS * PITCH(JOINT)];   // of the inputs of the hidden layer
  float parts[BLOCKS * ROWS * 16];
  float sums[WARPS * ROWS];
  float squares[BLOCKS * ROWS];
  u8 resets[STEPS * ROWS];
};

DEVICE void read_pair(float& x, float& y, const float* from) {
  float2 pair = *(const float2*)from;
  x = pair.x, y = pair.y;
}

// The gradient [4] of the input of a norm from that of its output, given its slope and
// the sum of direct * unit over the row.
DEVICE void pull_norm(float (&x)[4], const float (&unit)[4], const float (&sums)[2],
                      int size) {
  UNROLL for (int i = 0; i < 4; i++) x[i] -= unit[i] * sums[i / 2] / size;
}

KERNEL(THREADS, BLOCKS)
observe_backward(
    // Matrices, as RSSM.kernels(dense=False) has them.
    const u16* stoch_in, const u16* hidden_own, const u16* hidden_shared,
    const u16* gru, const u16* deter_out, const u16* post_logit, const float* gru_bias,
    // Gradients that come from outside of the loop [STEPS, BATCH, ...].
    const u16* grad_deter, const u16* grad_stoch, const u16* grad_drive,
    const float* grad_logit,
    // What is known of each step [STEPS, BATCH, ...].
    const u16* deter_before, const u8* reset, const u16* gate_product,
    const float* sample_slope, const float* input_steep, const float* input_unit,
    const float* hidden_steep, const float* hidden_unit, const float* post_steep,
    const float* post_unit,
    // Results: of the carry before the first step [BATCH, ...], then of those after each
    // step [STEPS, BATCH, ...].
    u16* first_deter, u16* first_stoch, u16* first_drive, u16* total_deter,
    u16* total_stoch, u16* total_drive) {
  Memory& m = *(Memory*)block_memory();
  const Place p = find_place();
  const int begin = p.cluster * ROWS;

  // Weights, for all steps.
  Matrix<1, FLAT> w_logit;
  Matrix<1, JOINT> w_out;
  Matrix<1, GATES> w_gru;
  Matrix<1, SLICE> w_own;
  Matrix<2, SLICE> w_shared;
  Matrix<2, HIDDEN> w_stoch;
  load_transposed(w_logit, p, post_logit, FLAT, 8 * p.warp, 8);
  load_transposed(w_out, p, deter_out + p.rank * SLICE * JOINT, JOINT, 8 * p.warp, 8);
  load_transposed(w_gru, p, gru + p.rank * SLICE * GATES, GATES, 8 * p.warp, 8);
  load_transposed(w_own, p, hidden_own + p.rank * SLICE * SLICE, SLICE, 8 * p.warp, 8);
  load_transposed(w_shared, p, hidden_shared + p.rank * SLICE, DETER, 16 * p.warp, 8);
  load_transposed(w_stoch, p, stoch_in, HIDDEN, 16 * p.warp, 8);

  const int column = 8 * p.warp + 2 * p.q;
  float b_gru[3][2];
  UNROLL for (int gate = 0; gate < 3; gate++)
    UNROLL for (int i = 0; i < 2; i++)
      b_gru[gate][i] = rounded(gru_bias[(p.rank * 3 + gate) * SLICE + column + i]);
  // Half of the threads take the input from deter, the others that from stoch: 8
  // columns of a row each.
  const int layer = p.thread / 128;
  const int own_row = p.thread % 128 / 8, own_column = p.thread % 8 * 8;
  for (int i = p.thread; i < STEPS * ROWS; i += THREADS)
    m.resets[i] = reset[i / ROWS * BATCH + begin + i % ROWS];

  // Gradients that the step after hands to this one.
  float later_deter[4] = {0, 0, 0, 0}, later_drive[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  Product<2> later_stoch;
  clear(later_stoch);

  // Needed at the very begin of a step: taken during the one before.
  u32 g_stoch[2][2], g_drive[4], g_deter[2];
  float g_logit[2][2][2], s_sample[2][2][2];
  auto take = [&](int step) {
    UNROLL for (int half = 0; half < 2; half++) {
      int row = step * BATCH + begin + p.g + 8 * half;
      g_deter[half] =
          *(const u32*)(grad_deter + row * DETER + p.rank * SLICE + column);
      UNROLL for (int tile = 0; tile < 2; tile++) {
        int at = row * FLAT + 16 * p.warp + 8 * tile + 2 * p.q;
        g_stoch[tile][half] = *(const u32*)(grad_stoch + at);
        read_pair(g_logit[tile][half][0], g_logit[tile][half][1], grad_logit + at);
        read_pair(s_sample[tile][half][0], s_sample[tile][half][1], sample_slope + at);
      }
    }
    read4(g_drive,
          grad_drive + (step * BATCH + begin + own_row) * HIDDEN + own_column);
  };
  take(STEPS - 1);
  // All blocks run before one writes into another.
  cluster_arrive();
  cluster_wait();

  for (int step = STEPS - 1; step >= 0; step--) {
    const int first_row = step * BATCH + begin;
    // Of the posterior and of the hidden layer, needed later in this step.
    float steep_post[4], unit_post[4], steep_hidden[4], unit_hidden[4], before[4];
    u32 known[3][2];
    UNROLL for (int half = 0; half < 2; half++) {
      int row = first_row + p.g + 8 * half, a = 2 * half, b = a + 1;
      int at = row * HIDDEN + column, wide = row * DETER + p.rank * SLICE + column;
      read_pair(steep_post[a], steep_post[b], post_steep + at);
      read_pair(unit_post[a], unit_post[b], post_unit + at);
      UNROLL for (int gate = 0; gate < 3; gate++)
        known[gate][half] = *(const u32*)(gate_product + row * 3 * DETER +
                                          (p.rank * 3 + gate) * SLICE + column);
      u32 pair = m.resets[step * ROWS + p.g + 8 * half]
                     ? 0 : *(const u32*)(deter_before + wide);
      before[a] = low(pair), before[b] = high(pair);
      read_pair(steep_hidden[a], steep_hidden[b], hidden_steep + wide);
      read_pair(unit_hidden[a], unit_hidden[b], hidden_unit + wide);
    }

    // Gradients of the carry after this step, and through the sample.
    float deter[4];
    UNROLL for (int half = 0; half < 2; half++) {
      int row = first_row + p.g + 8 * half, a = 2 * half, b = a + 1;
      deter[a] = low(g_deter[half]) + later_deter[a];
      deter[b] = high(g_deter[half]) + later_deter[b];
      *(u32*)(total_deter + row * DETER + p.rank * SLICE + column) =
          pack(deter[a], deter[b]);
      UNROLL for (int tile = 0; tile < 2; tile++) {
        int first = 16 * p.warp + 8 * tile + 2 * p.q;
        float x[2] = {low(g_stoch[tile][half]) + later_stoch.part[tile][a],
                      high(g_stoch[tile][half]) + later_stoch.part[tile][b]};
        if (p.warp == p.rank)
          *(u32*)(total_stoch + row * FLAT + first) = pack(x[0], x[1]);
        float along = 0;
        UNROLL for (int i = 0; i < 2; i++) {
          x[i] *= 1 - UNIMIX;
          along += x[i] * s_sample[tile][half][i];
        }
        along += exchange(along, 1);
        UNROLL for (int i = 0; i < 2; i++)
          x[i] = g_logit[tile][half][i] + s_sample[tile][half][i] * (x[i] - along);
        m.logit[(p.g + 8 * half) * PITCH(FLAT) + first / 2] = pack(x[0], x[1]);
      }
    }
    if (layer == 0) {
      float x[8];
      unpack(x, g_drive);
      u32* to = (u32*)(total_drive + (first_row + own_row) * HIDDEN + own_column);
      UNROLL for (int i = 0; i < 4; i++) {
        u32 pair = pack(x[2 * i] + later_drive[2 * i],
                        x[2 * i + 1] + later_drive[2 * i + 1]);
        m.out[own_row * PITCH(JOINT) + own_column / 2 + i] = pair;
        if (p.rank == 0) to[i] = pair;
      }
    }
    if (step > 0) take(step - 1);
    block_sync();

    // Posterior.
    Product<1> x;
    clear(x);
    multiply(x, p, m.logit, PITCH(FLAT), w_logit);
    float sums[2] = {0, 0};
    UNROLL for (int i = 0; i < 4; i++) {
      x.part[0][i] *= steep_post[i];
      sums[i / 2] += x.part[0][i] * unit_post[i];
    }
    sum_block(sums, p, m.sums);
    pull_norm(x.part[0], unit_post, sums, HIDDEN);
    store_pair(m.out, PITCH(JOINT), p, HIDDEN + 8 * p.warp, x.part[0]);
    block_sync();

    // Gates.
    UNROLL for (int i = 0; i < 4; i++) x.part[0][i] = deter[i];
    multiply(x, p, m.out, PITCH(JOINT), w_out);
    float grad_gate[4], grad_cand[4], grad_update[4];
    UNROLL for (int i = 0; i < 4; i++) {
      float value[3];
      UNROLL for (int gate = 0; gate < 3; gate++) {
        u32 pair = known[gate][i / 2];
        value[gate] = (i % 2 ? high(pair) : low(pair)) + b_gru[gate][i % 2];
      }
      float gate = sigmoid(value[0]), update = sigmoid(value[2] - 1);
      float cand = tangent(gate * value[1]);
      float grad = x.part[0][i], inner = grad * update * (1 - cand * cand);
      grad_gate[i] = inner * value[1] * gate * (1 - gate);
      grad_cand[i] = inner * gate;
      grad_update[i] = grad * (cand - before[i]) * update * (1 - update);
      deter[i] = grad * (1 - update);
    }
    store_pair(m.gates, PITCH(GATES), p, 8 * p.warp, grad_gate);
    store_pair(m.gates, PITCH(GATES), p, SLICE + 8 * p.warp, grad_cand);
    store_pair(m.gates, PITCH(GATES), p, 2 * SLICE + 8 * p.warp, grad_update);
    block_sync();

    // Hidden layer.
    clear(x);
    multiply(x, p, m.gates, PITCH(GATES), w_gru);
    sums[0] = sums[1] = 0;
    UNROLL for (int i = 0; i < 4; i++) {
      x.part[0][i] *= steep_hidden[i];
      sums[i / 2] += x.part[0][i] * unit_hidden[i];
    }
    sum_cluster(sums, p, m.sums, m.squares);
    pull_norm(x.part[0], unit_hidden, sums, DETER);
    store_pair(m.hidden, PITCH(SLICE), p, 8 * p.warp, x.part[0]);
    // Of the input layers, needed after the blocks have met twice.
    float steep[8], unit[8];
    const int at = ((first_row + own_row) * 2 + layer) * HIDDEN + own_column;
    read8(steep, input_steep + at);
    read8(unit, input_unit + at);
    block_sync();

    // Inputs of the hidden layer: a block has a part of each, then all of a few.
    send_parts(p, m.hidden, w_shared, m.parts);
    clear(x);
    multiply(x, p, m.hidden, PITCH(SLICE), w_own);
    UNROLL for (int i = 0; i < 4; i++)
      later_deter[i] = m.resets[step * ROWS + p.g + i / 2 * 8]
                           ? 0 : rounded(deter[i] + x.part[0][i]);
    share_sums(p, m.parts, m.whole);
    u32 pairs[4];
    read4(pairs, m.whole + own_row * PITCH(JOINT) + (layer * HIDDEN + own_column) / 2);
    float grad[8], along = 0;
    unpack(grad, pairs);
    UNROLL for (int i = 0; i < 8; i++) {
      grad[i] *= steep[i];
      along += grad[i] * unit[i];
    }
    UNROLL for (int mask = 1; mask < 8; mask *= 2) along += exchange(along, mask);
    const bool forget = m.resets[step * ROWS + own_row];
    UNROLL for (int i = 0; i < 8; i++)
      later_drive[i] = forget ? 0 : rounded(grad[i] - unit[i] * along / HIDDEN);
    if (layer == 1)
      UNROLL for (int i = 0; i < 4; i++)
        m.stoch[own_row * PITCH(HIDDEN) + own_column / 2 + i] =
            pack(later_drive[2 * i], later_drive[2 * i + 1]);
    block_sync();
    clear(later_stoch);
    multiply(later_stoch, p, m.stoch, PITCH(HIDDEN), w_stoch);
    UNROLL for (int tile = 0; tile < 2; tile++)
      UNROLL for (int i = 0; i < 4; i++)
        later_stoch.part[tile][i] = rounded(later_stoch.part[tile][i]);
  }

  UNROLL for (int half = 0; half < 2; half++) {
    int row = begin + p.g + 8 * half, a = 2 * half, b = a + 1;
    *(u32*)(first_deter + row * DETER + p.rank * SLICE + column) =
        pack(later_deter[a], later_deter[b]);
    if (p.warp == p.rank)
      UNROLL for (int tile = 0; tile < 2; tile++) {
        int at = row * FLAT + 16 * p.warp + 8 * tile + 2 * p.q;
        *(u32*)(first_stoch + at) =
            pack(later_stoch.part[tile][a], later_stoch.part[tile][b]);
      }
  }
  if (layer == 0 && p.rank == 0) {
    u32* to = (u32*)(first_drive + (begin + own_row) * HIDDEN + own_column);
    UNROLL for (int i = 0; i < 4; i++)
      to[i] = pack(later_drive[2 * i], later_drive[2 * i + 1]);
  }
}
