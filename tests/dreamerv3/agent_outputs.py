"""The agent's own code under the names of the golden file, next to the oracle's."""

import dataclasses
import functools

import elements
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle
from golden_names import by_golden_name, with_golden_values

from dreamerv3 import config
from dreamerv3.agent import behavior, optimizer, returns
from dreamerv3.agent.model import Dreamer, Nets
from dreamerv3.agent.networks.heads import ScalarHead
from dreamerv3.agent.networks.rssm import State
from embodied.jax.layout import Layout

__all__ = ['Setup', 'evaluate', 'setup']

f32 = np.float32


@dataclasses.dataclass(frozen=True)
class Setup:
    """An agent's networks with the parameters of `data`, and the inputs of it."""

    model: Dreamer
    nets: Nets
    slow: ScalarHead
    inputs: dict

    @property
    def state(self) -> State:
        return _state(self.inputs['core'])

    @property
    def feat(self) -> State:
        return _state(self.inputs['feat'])


def setup(problem: oracle.Problem, data: dict, *flags: str) -> Setup:
    """flags: more options, as on the command line."""
    model = Dreamer(*_spaces(problem), _config(problem, flags))
    params = {
        k.removeprefix('params.'): v for k, v in data.items() if k.startswith('params.')
    }
    nets = jax.eval_shape(lambda: model.init(jax.random.key(0))['params'])
    slow = with_golden_values({'slow': nets.value}, params, nets)['slow']
    inputs = oracle.nest(data)['in']
    return Setup(model, with_golden_values(nets, params, nets), slow, _to_f32(inputs))


def evaluate(setup: Setup) -> dict[str, np.ndarray]:
    """All that `oracle.evaluate` gives, and the gradients, computed by the agent."""

    def run(nets, slow, inputs):
        now = Setup(setup.model, nets, slow, inputs)
        # One program for both gradients: they are for different networks.
        both = lambda nets: _core_scalar(nets, now) + _wm_scalar(nets, now)
        return _evaluate(now), jax.grad(both)(nets)

    outs, grads = jax.jit(run)(setup.nets, setup.slow, setup.inputs)
    outs = {f'out.{k}': np.asarray(v) for k, v in oracle.flatten(outs).items()}
    for name, grad in by_golden_name(grads, setup.nets).items():
        group = 'core_grad' if name.startswith('dyn.') else 'wm_grad'
        outs[f'out.{group}.{name}'] = grad
    return outs


def _core_scalar(nets: Nets, setup: Setup) -> jax.Array:
    """The function of the networks that `out.core_grad.*` derives."""
    return jnp.square(_core(nets, setup).deter).sum()


def _wm_scalar(nets: Nets, setup: Setup) -> jax.Array:
    """The function of the networks that `out.wm_grad.*` derives."""
    feat, obs = setup.feat, setup.inputs['obs']
    losses = nets.dec.losses(nets.dec(feat), obs)
    live = (1 - obs['is_terminal']) * (1 - 1 / setup.model.config.horizon)
    losses['rew'] = nets.reward(feat.feat).loss(obs['reward'])
    losses['con'] = nets.cont(feat.feat).loss(live.astype(f32))
    return sum(x.mean() for x in losses.values())


def _evaluate(setup: Setup) -> dict:
    return {
        **_latents(setup),
        'dec': _decoder(setup),
        'heads': _heads(setup),
        'imag': _imagined(setup),
        'repl': _replayed(setup),
        'lam': {'ret': _lambda_return(setup)},
        'opt': _optimizer(setup),
        'wm_scalar': _wm_scalar(setup.nets, setup),
    }


def _latents(setup: Setup) -> dict:
    nets, inputs, state = setup.nets, setup.inputs, setup.state
    obs = {k: inputs['obs'][k] for k in setup.model.encoded}
    tokens = nets.enc(obs, f32)
    core = _core(nets, setup)
    one = lambda x: x[:, None]
    observed, logit = nets.dyn.observe(
        state,
        tokens[:, :1],
        one(_first_action(setup)),
        one(inputs['observe']['reset']),
        one(jnp.zeros_like(state.stoch)),
    )
    post, prior = (nets.dyn.dist(inputs['kl'][k]) for k in ('post', 'prior'))
    return {
        'enc': {'tokens': tokens},
        'core': {'deter': core.deter},
        'prior': {'logit': nets.dyn.prior_of(core.deter)},
        'observe': {'deter': observed.deter[:, 0], 'logit': logit[:, 0]},
        'kl': {'per_step': post.kl(prior), 'entropy_post': post.entropy()},
    }


def _core(nets: Nets, setup: Setup) -> State:
    action, noise = _first_action(setup), jnp.zeros_like(setup.state.stoch)
    return nets.dyn.imagine_step(setup.state, action, noise)


def _first_action(setup: Setup) -> jax.Array:
    first = {k: v[:, 0] for k, v in setup.inputs['act'].items()}
    return setup.model.actions.vector(first, f32)


def _decoder(setup: Setup) -> dict:
    outs = setup.nets.dec(setup.feat)
    vectors = setup.model.inputs.vectors
    raw = lambda k: k in vectors and not vectors[k].discrete
    return {
        'loss': setup.nets.dec.losses(outs, setup.inputs['obs']),
        'pred': {k: x.mean if raw(k) else x.pred() for k, x in outs.items()},
    }


def _heads(setup: Setup) -> dict:
    nets, inputs, feat = setup.nets, setup.inputs, setup.feat.feat
    live = (1 - inputs['obs']['is_terminal']) * (1 - 1 / setup.model.config.horizon)
    outs = {
        'rew_pred': nets.reward(feat).pred(),
        'rew_loss': nets.reward(feat).loss(inputs['obs']['reward']),
        'con_prob': nets.cont(feat).prob(),
        'con_loss': nets.cont(feat).loss(live.astype(f32)),
        'val_pred': nets.value(feat).pred(),
        'slowval_pred': setup.slow(feat).pred(),
    }
    for key, dist in nets.policy(feat).items():
        outs[f'pol_logp_{key}'] = dist.logp(inputs['act'][key])
        outs[f'pol_ent_{key}'] = dist.entropy()
        if setup.model.actions.spaces[key].discrete:
            layer = nets.policy.logits[key]
            outs[f'pol_{key}_logits'] = layer(nets.policy.mlp(feat))
        else:
            outs |= {f'pol_{key}_mean': dist.mean, f'pol_{key}_std': dist.std}
    return outs


def _imagined(setup: Setup) -> dict:
    nets, model, imag = setup.nets, setup.model, setup.inputs['imag']
    turn = lambda x: x.swapaxes(0, 1)  # time first, or back
    feat = turn(_state(imag).feat)
    policy = nets.policy(feat[:-1])
    reward, cont = nets.reward(feat).pred(), nets.cont(feat).prob()
    acts = {k: turn(v)[:-1] for k, v in imag['act'].items()}
    losses, ret, ranges, metrics = behavior.imagined_losses(
        policy,
        nets.value(feat),
        setup.slow(feat[:-1]),
        reward,
        cont,
        model.actions.logp(policy, acts),
        returns.Range(f32(0), f32(0)),
        model.config,
    )
    return {
        **{k: turn(x) for k, x in losses.items()},
        'ret': turn(ret),
        'rew': turn(reward),
        'con': turn(cont),
        'val': turn(nets.value(feat).pred()),
        'lo': ranges.low,
        'hi': ranges.high,
        'adv_mean': metrics['adv_mean'],
    }


def _replayed(setup: Setup) -> dict:
    obs, feat = setup.inputs['obs'], setup.feat.feat[:, :-1]
    loss, ret = behavior.replayed_value_loss(
        setup.nets.value(feat),
        setup.slow(feat),
        setup.inputs['repl']['boot'],
        *(obs[k] for k in ('reward', 'is_last', 'is_terminal')),
        setup.model.config,
    )
    return {'ret': ret, 'repval': loss}


def _lambda_return(setup: Setup) -> jax.Array:
    x, config = setup.inputs['lam'], setup.model.config
    live = (1 - x['term']) * f32(1 - 1 / config.horizon)
    mix = config.lam * (1 - x['last']).astype(f32)
    return returns.lambda_return(x['rew'], live, mix, x['boot'])


def _optimizer(setup: Setup) -> dict:
    inputs = setup.inputs['opt']
    params = {k: jnp.asarray(v) for k, v in inputs['params'].items()}
    layout = Layout(params)
    transform = optimizer.make_optimizer(setup.model.config.opt, layout)
    vector = layout.join(params)
    state, outs = transform.init(vector), {}
    for index in range(sum(k.startswith('grads') for k in inputs)):
        grads = layout.join(inputs[f'grads{index}'])
        updates, state = transform.update(grads, state, vector)
        vector = optax.apply_updates(vector, updates)
        outs[f'params{index + 1}'] = layout.split(vector)
    return outs


def _state(tree: dict) -> State:
    return State(jnp.asarray(tree['deter']), jnp.asarray(tree['stoch']))


def _to_f32(tree: dict) -> dict:
    # The file's floats are float32, so nothing is lost on the way through float64.
    narrow = lambda x: x.astype(f32) if x.dtype == np.float64 else x
    return jax.tree.map(narrow, tree)


@functools.cache
def _resolve(flags: tuple[str, ...]) -> elements.Config:
    return config.resolve(flags)[0]


def _config(problem: oracle.Problem, flags: tuple[str, ...]) -> elements.Config:
    """Sizes of the problem; the golden file has no uniform mix in the policy."""
    x = problem
    options = {
        'configs': 'debug',
        'agent.dyn.deter': x.deter,
        r'.*\.hidden': x.hidden,
        r'.*\.stoch': x.stoch,
        r'.*\.classes': x.classes,
        r'.*\.units': x.units,
        r'.*\.depth': x.depth,
        r'.*\.mults': ','.join(map(str, x.mults)),
        r'.*\.blocks': x.blocks,
        r'.*\.bins': x.bins,
        'agent.policy.unimix': 0.0,
    }
    return _resolve((*(f'--{k}={v}' for k, v in options.items()), *flags))


def _spaces(problem: oracle.Problem) -> tuple[dict, dict]:
    x = problem
    obs = {
        **{k: elements.Space(f32, n) for k, n in x.vectors.items()},
        **{k: elements.Space(np.int32, (), 0, n) for k, n in x.tokens.items()},
        'reward': elements.Space(f32),
        **{k: elements.Space(bool) for k in ('is_first', 'is_last', 'is_terminal')},
    }
    if x.image:
        obs['image'] = elements.Space(np.uint8, x.image)
    act = {
        **{k: elements.Space(np.int32, (), 0, n) for k, n in x.discrete.items()},
        **{k: elements.Space(f32, n, -1, 1) for k, n in x.continuous.items()},
    }
    return obs, act
