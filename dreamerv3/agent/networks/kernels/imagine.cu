// Imagines: policy and model step by step, as behavior.imagine does, in one launch.
//
// A cluster works on ROWS rows, in tiles of 16. Each block has a slice of the recurrent
// state, and does the policy and the prior for itself. The blocks wait for each other
// three times per step, as in observe_forward.cu.

// Four threads draw the action of a row from what the policy says in m.head.
DEVICE void draw(Memory& m, const Place& p, int row, const float (&noise)[4][2],
                 int* index, float* value) {
  const float* head = m.head + row * (2 * ACTIONS + 1);
  u32* to = m.action + row * PITCH(ACTIONS);
  float x[4][2];
#if DISCRETE
  float most = -1e30f, total = 0;
  UNROLL for (int j = 0; j < 4; j++)
    UNROLL for (int i = 0; i < 2; i++) {
      int c = 2 * (p.q + 4 * j) + i;
      x[j][i] = c < WIDTH ? head[c] : -1e30f;
      most = fmaxf(most, x[j][i]);
    }
  most = fmaxf(most, exchange(most, 1));
  most = fmaxf(most, exchange(most, 2));
  UNROLL for (int j = 0; j < 4; j++)
    UNROLL for (int i = 0; i < 2; i++) {
      int c = 2 * (p.q + 4 * j) + i;
      x[j][i] = c < WIDTH ? exponential(x[j][i] - most) : 0;
      total += x[j][i];
    }
  total += exchange(total, 1);
  total += exchange(total, 2);
  float top = -1e30f;
  UNROLL for (int j = 0; j < 4; j++)
    UNROLL for (int i = 0; i < 2; i++) {
      int c = 2 * (p.q + 4 * j) + i;
      float prob = (1 - POLICY_UNIMIX) * divide(x[j][i], total) + POLICY_UNIMIX / WIDTH;
      x[j][i] = c < WIDTH ? logarithm(prob) + noise[j][i] : -1e30f;
      top = fmaxf(top, x[j][i]);
    }
  top = fmaxf(top, exchange(top, 1));
  top = fmaxf(top, exchange(top, 2)) - 1e-5f;
  int first = WIDTH;
  UNROLL for (int j = 3; j >= 0; j--)
    UNROLL for (int i = 1; i >= 0; i--)
      if (x[j][i] >= top) first = 2 * (p.q + 4 * j) + i;
  UNROLL for (int mask = 1; mask < 4; mask *= 2) {
    int other = exchange(first, mask);
    first = first < other ? first : other;
  }
  UNROLL for (int j = 0; j < 4; j++) {
    int c = 2 * (p.q + 4 * j);
    to[c / 2] = pack(c == first, c + 1 == first);
  }
  if (p.q == 0 && index) *index = first;
#else
  UNROLL for (int j = 0; j < 4; j++) {
    UNROLL for (int i = 0; i < 2; i++) {
      int c = 2 * (p.q + 4 * j) + i;
      float spread = (MAXSTD - MINSTD) * sigmoid(head[ACTIONS + c] + 2) + MINSTD;
      x[j][i] = c < WIDTH ? tangent(head[c]) + spread * noise[j][i] : 0;
      if (c < WIDTH && value) value[c] = x[j][i];
      // The model sees actions in the compute dtype, and none beyond 1.
      x[j][i] = rounded(x[j][i]);
      x[j][i] = divide(x[j][i], fmaxf(1, fabsf(x[j][i])));
    }
    to[p.q + 4 * j] = pack(x[j][0], x[j][1]);
  }
#endif
}

KERNEL(THREADS, BLOCKS)
imagine(
    // Matrices; products of the same input are side by side, heads and actions padded
    // to ACTIONS.
    const u16* stoch_out, const u16* policy1, const u16* policy2, const u16* head,
    const u16* action_in, const u16* hidden_shared, const u16* hidden_own,
    const u16* gru, const u16* deter_out, const u16* prior1, const u16* prior_logit,
    // Biases and scales [8, 2, HIDDEN] in the order of Vectors, and the other vectors.
    const float* layers, const float* head_bias, const float* hidden_bias,
    const float* hidden_scale, const float* gru_bias, const float* logit_bias,
    // The state before the first step [N, ...] and its products.
    const u16* first_deter, const u16* first_stoch, const u16* first_drive,
    const u16* first_policy,
    // Noise [STEPS, N, ...].
    const float* gumbel, const float* action_noise,
    // Results: states [STEPS + 1, N, ...] and actions [STEPS, N] or [STEPS, N, WIDTH].
    u16* out_deter, u16* out_stoch, void* out_action) {
  Memory& m = *(Memory*)block_memory();
  Vectors& v = m.vectors;
  const Place p = find_place();
  const int begin = p.cluster * ROWS;
  const int column = 8 * p.warp + 2 * p.q;

  Matrix<1, HIDDEN> w_policy1, w_policy2, w_head, w_prior1;
  Matrix<1, ACTIONS> w_action;
  Matrix<1, INPUTS> w_shared;
  Matrix<1, SLICE> w_own;
  Matrix<3, SLICE> w_gru, w_out;
  load(w_policy1, p, policy1, HIDDEN, 8 * p.warp, 8);
  load(w_policy2, p, policy2, HIDDEN, 8 * p.warp, 8);
  load(w_head, p, head, 2 * ACTIONS, 8 * p.warp, 8);
  load(w_prior1, p, prior1, HIDDEN, 8 * p.warp, 8);
  load(w_action, p, action_in, HIDDEN, 8 * p.warp, 8);
  load(w_shared, p, hidden_shared, DETER, p.rank * SLICE + 8 * p.warp, 8);
  load(w_own, p, hidden_own + p.rank * SLICE * SLICE, SLICE, 8 * p.warp, 8);
  load(w_gru, p, gru + p.rank * SLICE * 3 * SLICE, 3 * SLICE, 8 * p.warp, SLICE);
  load(w_out, p, deter_out + p.rank * SLICE * OUTPUTS, OUTPUTS, 24 * p.warp, 8);
  {
    Matrix<2, FLAT> w_stoch;
    load(w_stoch, p, stoch_out, 2 * HIDDEN, 8 * p.warp, HIDDEN);
    keep(m.stoch_out, p, w_stoch);
    Matrix<2, HIDDEN> w_logit;
    load(w_logit, p, prior_logit, FLAT, 16 * p.warp, 8);
    keep(m.prior_logit, p, w_logit);
  }
  copy((float*)&v, layers, 8 * 2 * HIDDEN, p);
  copy(v.head_bias, head_bias, 2 * ACTIONS, p);
  copy(v.hidden_bias, hidden_bias + p.rank * SLICE, SLICE, p);
  copy(v.hidden_scale, hidden_scale + p.rank * SLICE, SLICE, p);
  copy(v.gru_bias, gru_bias + p.rank * 3 * SLICE, 3 * SLICE, p);
  copy(v.logit_bias, logit_bias, FLAT, p);

  // The state, which is also the first of the results.
  float deter[TALL][4];
  u32 drive[TALL][2], policy[TALL][2];
  UNROLL for (int tall = 0; tall < TALL; tall++) {
    UNROLL for (int half = 0; half < 2; half++) {
      int row = begin + 16 * tall + p.g + 8 * half;
      u32 pair = *(const u32*)(first_deter + row * DETER + p.rank * SLICE + column);
      *(u32*)(out_deter + row * DETER + p.rank * SLICE + column) = pair;
      deter[tall][2 * half] = low(pair), deter[tall][2 * half + 1] = high(pair);
      drive[tall][half] = *(const u32*)(first_drive + row * HIDDEN + column);
      policy[tall][half] = *(const u32*)(first_policy + row * HIDDEN + column);
    }
    store_pair(m.deter + tall * 16 * PITCH(SLICE), PITCH(SLICE), p, 8 * p.warp,
               deter[tall]);
  }
  for (int i = p.thread; i < ROWS * FLAT / 2; i += THREADS) {
    int row = i / (FLAT / 2), word = i % (FLAT / 2);
    u32 pair = ((const u32*)first_stoch)[(begin + row) * (FLAT / 2) + word];
    m.stoch[row * PITCH(FLAT) + word] = pair;
    if (p.rank == word / 8) ((u32*)out_stoch)[(begin + row) * (FLAT / 2) + word] = pair;
  }
  block_sync();
  Product<1> own[TALL];
  auto multiply_own = [&]() {
    UNROLL for (int tall = 0; tall < TALL; tall++) {
      clear(own[tall]);
      multiply(own[tall], p, m.deter + tall * 16 * PITCH(SLICE), PITCH(SLICE), w_own);
    }
  };
  multiply_own();
  // All blocks run before one writes into another.
  cluster_arrive();
  cluster_wait();

  for (int step = 0; step < STEPS; step++) {
    const int first_row = step * N + begin;

    // Products of stoch: inputs of the hidden layer, first layer of the policy.
    {
      Product<1> x[TALL][3];
      Matrix<2, FLAT> w_stoch;
      recall(w_stoch, p, m.stoch_out);
      UNROLL for (int tall = 0; tall < TALL; tall++) {
        Product<2> both;
        clear(both);
        multiply(both, p, m.stoch + tall * 16 * PITCH(FLAT), PITCH(FLAT), w_stoch);
        UNROLL for (int i = 0; i < 4; i++) {
          u32 a = drive[tall][i / 2], b = policy[tall][i / 2];
          x[tall][0].part[0][i] = i % 2 ? high(a) : low(a);
          x[tall][1].part[0][i] = both.part[0][i];
          x[tall][2].part[0][i] = both.part[1][i] + (i % 2 ? high(b) : low(b));
        }
        begin_norm(x[tall][0].part[0], p, v.deter_in.bias, m.sums[0][tall]);
        begin_norm(x[tall][1].part[0], p, v.stoch_in.bias, m.sums[1][tall]);
        begin_norm(x[tall][2].part[0], p, v.policy[0].bias, m.sums[2][tall]);
      }
      block_sync();
      UNROLL for (int tall = 0; tall < TALL; tall++) {
        u32* inputs = m.inputs + tall * 16 * PITCH(INPUTS);
        end_norm(x[tall][0].part[0], p, v.deter_in.scale, m.sums[0][tall], HIDDEN,
                 inputs, PITCH(INPUTS), 0);
        end_norm(x[tall][1].part[0], p, v.stoch_in.scale, m.sums[1][tall], HIDDEN,
                 inputs, PITCH(INPUTS), HIDDEN);
        end_norm(x[tall][2].part[0], p, v.policy[0].scale, m.sums[2][tall], HIDDEN,
                 m.layer + tall * 16 * PITCH(HIDDEN), PITCH(HIDDEN), 0);
      }
      block_sync();
    }

    // The rest of the policy. Four threads per row will draw its action.
    const int row = p.thread / 4;
    const bool draws = row < ROWS;
    float chance[4][2] = {};
    if (draws)
      UNROLL for (int j = 0; j < 4; j++)
        UNROLL for (int i = 0; i < 2; i++) {
          int c = 2 * (p.q + 4 * j) + i;
          if (c < WIDTH) chance[j][i] = action_noise[(first_row + row) * WIDTH + c];
        }
    apply(m, p, w_policy1, v.policy[1]);
    apply(m, p, w_policy2, v.policy[2]);
    UNROLL for (int tall = 0; tall < TALL; tall++) {
      Product<1> x;
      clear(x);
      multiply(x, p, m.layer + tall * 16 * PITCH(HIDDEN), PITCH(HIDDEN), w_head);
      UNROLL for (int i = 0; i < 4; i++) {
        int at = 16 * tall + p.g + i / 2 * 8, c = column + i % 2;
        m.head[at * (2 * ACTIONS + 1) + c] = x.part[0][i] + v.head_bias[c];
      }
    }
    block_sync();
    if (draws) {
      bool writes = p.rank == 0;
      int at = first_row + row;
      draw(m, p, row, chance, writes ? (int*)out_action + at : nullptr,
           writes ? (float*)out_action + at * WIDTH : nullptr);
    }
    block_sync();

    // Input from the action.
    {
      Product<1> x[TALL];
      UNROLL for (int tall = 0; tall < TALL; tall++) {
        clear(x[tall]);
        multiply(x[tall], p, m.action + tall * 16 * PITCH(ACTIONS), PITCH(ACTIONS),
                 w_action);
        begin_norm(x[tall].part[0], p, v.action_in.bias, m.sums[0][tall]);
      }
      block_sync();
      UNROLL for (int tall = 0; tall < TALL; tall++)
        end_norm(x[tall].part[0], p, v.action_in.scale, m.sums[0][tall], HIDDEN,
                 m.inputs + tall * 16 * PITCH(INPUTS), PITCH(INPUTS), 2 * HIDDEN);
      block_sync();

      // Hidden layer.
      UNROLL for (int tall = 0; tall < TALL; tall++) {
        UNROLL for (int i = 0; i < 4; i++) x[tall].part[0][i] = own[tall].part[0][i];
        multiply(x[tall], p, m.inputs + tall * 16 * PITCH(INPUTS), PITCH(INPUTS),
                 w_shared);
        begin_norm(x[tall].part[0], p, v.hidden_bias, m.sums[1][tall]);
      }
      block_sync();
      UNROLL for (int tall = 0; tall < TALL; tall++)
        send_sums(p, m.sums[1][tall], m.squares[tall]);
      cluster_arrive();
      cluster_wait();
      UNROLL for (int tall = 0; tall < TALL; tall++)
        end_norm(x[tall].part[0], p, v.hidden_scale, m.squares[tall], DETER,
                 m.hidden + tall * 16 * PITCH(SLICE), PITCH(SLICE), 0);
      block_sync();
    }

    // Gates.
    UNROLL for (int tall = 0; tall < TALL; tall++) {
      Product<3> gates;
      clear(gates);
      multiply(gates, p, m.hidden + tall * 16 * PITCH(SLICE), PITCH(SLICE), w_gru);
      UNROLL for (int i = 0; i < 4; i++) {
        const float* bias = v.gru_bias + column + i % 2;
        deter[tall][i] = next_deter(gates.part[0][i] + bias[0],
                                    gates.part[1][i] + bias[SLICE],
                                    gates.part[2][i] + bias[2 * SLICE], deter[tall][i]);
      }
      store_pair(m.deter + tall * 16 * PITCH(SLICE), PITCH(SLICE), p, 8 * p.warp,
                 deter[tall]);
      UNROLL for (int half = 0; half < 2; half++) {
        int at = first_row + N + 16 * tall + p.g + 8 * half;
        *(u32*)(out_deter + at * DETER + p.rank * SLICE + column) =
            pack(deter[tall][2 * half], deter[tall][2 * half + 1]);
      }
    }
    block_sync();

    // Products of the new state: warp w sends those of 24 columns to block w, which adds
    // up the parts of all blocks and hands the sums around.
    UNROLL for (int tall = 0; tall < TALL; tall++) {
      Product<3> out;
      clear(out);
      multiply(out, p, m.deter + tall * 16 * PITCH(SLICE), PITCH(SLICE), w_out);
      UNROLL for (int half = 0; half < 2; half++) {
        int a = 2 * half, b = a + 1, at = 16 * tall + p.g + 8 * half;
        push(m.parts + ((p.rank * ROWS + at) * 4 + p.q) * 4, p.warp,
             pack(out.part[0][a], out.part[0][b]), pack(out.part[1][a], out.part[1][b]),
             pack(out.part[2][a], out.part[2][b]), 0u);
      }
    }
    cluster_arrive();
    multiply_own();
    cluster_wait();
    if (draws) {
      float sum[3][2] = {};
      UNROLL for (int block = 0; block < BLOCKS; block++) {
        u32 pairs[4];
        read4(pairs, m.parts + ((block * ROWS + row) * 4 + p.q) * 4);
        UNROLL for (int tile = 0; tile < 3; tile++) {
          sum[tile][0] += low(pairs[tile]);
          sum[tile][1] += high(pairs[tile]);
        }
      }
      u32 x = pack(sum[0][0], sum[0][1]), y = pack(sum[1][0], sum[1][1]);
      u32 z = pack(sum[2][0], sum[2][1]);
      UNROLL for (int block = 0; block < BLOCKS; block++)
        push(m.whole + row * WORDS + p.rank * 16 + p.q * 4, block, x, y, z, 0u);
    }
    cluster_arrive();
    float noise[TALL][2][2][2];
    UNROLL for (int tall = 0; tall < TALL; tall++)
      UNROLL for (int tile = 0; tile < 2; tile++)
        UNROLL for (int half = 0; half < 2; half++) {
          int at = first_row + 16 * tall + p.g + 8 * half;
          float2 pair = *(const float2*)(gumbel + at * FLAT + 16 * p.warp + 8 * tile +
                                         2 * p.q);
          noise[tall][tile][half][0] = pair.x, noise[tall][tile][half][1] = pair.y;
        }
    cluster_wait();

    // Prior.
    {
      Product<1> x[TALL];
      UNROLL for (int tall = 0; tall < TALL; tall++) {
        UNROLL for (int half = 0; half < 2; half++) {
          int at = 16 * tall + p.g + 8 * half;
          u32 pair = product_of(m, at, p.warp, p.q);
          x[tall].part[0][2 * half] = low(pair);
          x[tall].part[0][2 * half + 1] = high(pair);
          drive[tall][half] = product_of(m, at, 8 + p.warp, p.q);
          policy[tall][half] = product_of(m, at, 16 + p.warp, p.q);
        }
        begin_norm(x[tall].part[0], p, v.prior[0].bias, m.sums[0][tall]);
      }
      block_sync();
      UNROLL for (int tall = 0; tall < TALL; tall++)
        end_norm(x[tall].part[0], p, v.prior[0].scale, m.sums[0][tall], HIDDEN,
                 m.layer + tall * 16 * PITCH(HIDDEN), PITCH(HIDDEN), 0);
      block_sync();
    }
    apply(m, p, w_prior1, v.prior[1]);
    Matrix<2, HIDDEN> w_logit;
    recall(w_logit, p, m.prior_logit);
    UNROLL for (int tall = 0; tall < TALL; tall++) {
      Product<2> out;
      clear(out);
      multiply(out, p, m.layer + tall * 16 * PITCH(HIDDEN), PITCH(HIDDEN), w_logit);
      UNROLL for (int tile = 0; tile < 2; tile++)
        UNROLL for (int half = 0; half < 2; half++) {
          float logit[2], onehot[2];
          int first = 16 * p.warp + 8 * tile + 2 * p.q;
          int at = 16 * tall + p.g + 8 * half;
          UNROLL for (int i = 0; i < 2; i++)
            logit[i] = out.part[tile][2 * half + i] + v.logit_bias[first + i];
          sample(logit, noise[tall][tile][half], p.q, onehot);
          u32 pair = pack(onehot[0], onehot[1]);
          m.stoch[at * PITCH(FLAT) + first / 2] = pair;
          if (p.warp == p.rank)
            *(u32*)(out_stoch + (first_row + N + at) * FLAT + first) = pair;
        }
    }
    block_sync();
  }
}
