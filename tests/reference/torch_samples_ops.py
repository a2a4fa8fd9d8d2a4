"""The table of torch_samples.py: PyTorch's ops in terms of heed's. Each entry takes the program and the sample's
arguments, with symbols in place of tensors, and returns the symbols of its results. It raises Skip if heed has no such
option."""
import math

import torch

DTYPES = {torch.float32: 'float32', torch.float64: 'float64', torch.bfloat16: 'bfloat16', torch.int32: 'int32',
          torch.int64: 'int32', torch.bool: 'bool8'}


class Skip(Exception):
    pass


class Symbol:
    """A value of a program. Symbols of inputs have their tensor."""

    def __init__(self, program, number, tensor=None):
        self.p, self.number, self.t = program, number, tensor

    def op(self, name, *others, **args):
        return self.p.op(name, self, *others, **args)

    def __getattr__(self, name):  # shape, ndim, dtype, numel, size of inputs
        if name in ('shape', 'ndim', 'dtype', 'numel', 'size', 'is_floating_point', 'dim'):
            if self.t is None:
                raise Skip('the shape of a value in between')
            return getattr(self.t, name)
        raise AttributeError(name)

    def _two(self, name, other):
        if isinstance(other, Symbol):
            return self.op(name, other)
        return self.op(name, number=number(other))

    def __add__(self, o): return self._two('add', o)
    def __radd__(self, o): return self._two('add', o)
    def __sub__(self, o): return self._two('sub', o)
    def __rsub__(self, o): return self.op('sub', number=number(o), first=True)
    def __mul__(self, o): return self._two('mul', o)
    def __rmul__(self, o): return self._two('mul', o)
    def __truediv__(self, o): return self._two('div', o)
    def __rtruediv__(self, o): return self.op('div', number=number(o), first=True)
    def __neg__(self): return self.op('neg')


class Program:
    def __init__(self):
        self.inputs, self.steps, self.results = [], [], 0
        self.compared = None  # number of PyTorch's results to compare; None: all

    def input(self, t, grad):
        if t.dtype not in DTYPES:
            return Symbol(self, None, t)  # an error only if the value is used
        if t.ndim > 8:
            raise Skip('more than eight axes')
        if t.dtype == torch.int64:
            if t.numel() and (t.max() >= 2**31 or t.min() < -2**31):
                raise Skip('integers beyond int32')
        s = Symbol(self, ('in', len(self.inputs)), t)
        self.inputs.append(((t.to(torch.int32) if t.dtype == torch.int64 else t).detach(), grad))
        return s

    def op(self, name, *xs, results=1, **args):
        ids = []
        for x in xs:
            if x is None:
                ids.append(-1)
                continue
            if not isinstance(x, Symbol):
                raise Skip(f'an argument that is {type(x).__name__}')
            if x.number is None:
                raise Skip(f'the dtype {x.t.dtype}')
            ids.append(x.number)
        self.steps.append((name, ids, args))
        out = [Symbol(self, ('step', self.results + i)) for i in range(results)]
        self.results += results
        return out if results > 1 else out[0]

    def number(self, n):
        if n == -1:
            return -1
        kind, i = n
        return i if kind == 'in' else len(self.inputs) + i

    def head(self, outputs):
        for o in outputs:
            if not isinstance(o, Symbol) or o.number is None:
                raise Skip('a result that is no tensor')
        return {'inputs': [{'dtype': DTYPES[t.dtype], 'shape': list(t.shape), 'grad': grad} for t, grad in self.inputs],
                'steps': [{'op': name, 'in': [self.number(i) for i in ids],
                           'args': {k: ([self.number(i) for i in v] if k == 'of' else
                                        {n: self.number(i) for n, i in v.items()} if k == 'parameters' else v)
                                    for k, v in args.items()}} for name, ids, args in self.steps],
                'outputs': [self.number(o.number) for o in outputs]}

    def tensors(self):
        return [t for t, _ in self.inputs]

    def gradients(self, given):
        return given


def number(x):
    if isinstance(x, bool):
        return float(x)
    if isinstance(x, (int, float)):
        return float(x)
    raise Skip(f'a number that is {type(x).__name__}')


def only(kwargs, *known):
    """Raises Skip for options that an entry does not support, unless they have their default value."""
    for k, v in kwargs.items():
        if k not in known and v is not None and v is not False:
            raise Skip(f'option {k}')


def one_of(word, *known):
    """A word that is a value of an enum in heed."""
    if word not in known:
        raise Skip('a word for which heed has an enum')
    return word


def axes(dim):
    if dim is None or dim == () or dim == []:
        return {}
    return {'axes': [dim] if isinstance(dim, int) else list(dim)}


def cast(x, dtype):
    if dtype is None or (x.t is not None and x.t.dtype == dtype):
        return x
    if dtype not in DTYPES or dtype == torch.int64:
        raise Skip(f'to the dtype {dtype}')
    return x.op('to', dtype=DTYPES[dtype])


def reshape(x, shape):
    return x.op('reshape', sizes=[int(s) for s in shape])


def shape_of(a):
    """A shape given as separate numbers or as one list."""
    return list(a[0]) if len(a) == 1 and isinstance(a[0], (list, tuple, torch.Size)) else list(a)


def positive(dim, rank):
    return dim + rank if dim < 0 else dim


# Ops.
OPS = {}


def op(*names):
    def add(f):
        for n in names:
            OPS[n] = f
        return f
    return add


def unary(name):
    return lambda p, x, **k: (only(k), x.op(name))[1]


for torch_name, heed_name in {
        'neg': 'neg', 'abs': 'abs', 'sign': 'sign', 'sgn': 'sign', 'square': 'square', 'sqrt': 'sqrt', 'rsqrt': 'rsqrt',
        'exp': 'exp', 'expm1': 'expm1', 'log': 'log', 'log1p': 'log1p', 'sin': 'sin', 'cos': 'cos', 'erf': 'erf',
        'sigmoid': 'sigmoid', 'tanh': 'tanh', 'nn.functional.relu': 'relu', 'nn.functional.silu': 'silu',
        'isnan': 'isnan', 'isfinite': 'isfinite', 'logical_not': 'logical_not', 'clone': 'clone',
        'contiguous': 'contiguous', 'positive': 'clone', 'resolve_neg': 'clone', 'resolve_conj': 'clone',
        'real': 'clone', 'conj': 'clone', 'conj_physical': 'clone', 'alias_copy': 'clone'}.items():
    def _unary(p, x, *a, _name=heed_name, **k):
        only(k, 'inplace', 'memory_format')
        return x.op(_name)
    OPS[torch_name] = _unary

OPS['reciprocal'] = lambda p, x: 1 / x
OPS['exp2'] = lambda p, x: x.op('pow', number=2.0, first=True)
OPS['log2'] = lambda p, x: x.op('log') * (1 / math.log(2))
OPS['log10'] = lambda p, x: x.op('log') * (1 / math.log(10))
OPS['tan'] = lambda p, x: x.op('sin') / x.op('cos')
OPS['deg2rad'] = lambda p, x: x * (math.pi / 180)
OPS['rad2deg'] = lambda p, x: x * (180 / math.pi)
OPS['isinf'] = lambda p, x: x.op('abs').op('eq', number=math.inf)
OPS['isposinf'] = lambda p, x: x.op('eq', number=math.inf)
OPS['isneginf'] = lambda p, x: x.op('eq', number=-math.inf)
OPS['isreal'] = lambda p, x: x.op('eq', x).op('logical_or', x.op('isnan'))
OPS['bitwise_not'] = lambda p, x: x.op('logical_not')


def two(name):
    def call(p, a, b, **k):
        only(k)
        if name.startswith('logical') and not (isinstance(a, Symbol) and isinstance(b, Symbol)):
            raise Skip('a logical op of a number')
        if isinstance(a, Symbol):
            return a._two(name, b)
        if name in ('mul', 'add', 'maximum', 'minimum', 'eq', 'ne'):
            return b._two(name, a)
        if name in ('lt', 'le', 'gt', 'ge'):
            return b._two({'lt': 'gt', 'le': 'ge', 'gt': 'lt', 'ge': 'le'}[name], a)
        return b.op(name, number=number(a), first=True)
    return call


for torch_name, heed_name in {
        'mul': 'mul', 'maximum': 'maximum', 'minimum': 'minimum', 'max.binary': 'maximum',
        'min.binary': 'minimum', 'eq': 'eq', 'ne': 'ne', 'lt': 'lt', 'le': 'le', 'gt': 'gt', 'ge': 'ge', 'pow': 'pow',
        'logical_and': 'logical_and', 'logical_or': 'logical_or', 'logical_xor': 'logical_xor', '__radd__': 'add',
        '__rmul__': 'mul', '__rand__': 'logical_and', '__ror__': 'logical_or', '__rxor__': 'logical_xor',
        'bitwise_and': 'logical_and', 'bitwise_or': 'logical_or', 'bitwise_xor': 'logical_xor'}.items():
    OPS[torch_name] = two(heed_name)


def alpha_of(b, alpha):
    if alpha == 1:
        return b
    return b * alpha if isinstance(b, Symbol) else number(b) * number(alpha)


OPS['add'] = lambda p, a, b, *, alpha=1: (
    a._two('add', alpha_of(b, alpha)) if isinstance(a, Symbol) else alpha_of(b, alpha) + a)
OPS['sub'] = lambda p, a, b, *, alpha=1: (
    a._two('sub', alpha_of(b, alpha)) if isinstance(a, Symbol) else number(a) - alpha_of(b, alpha))


@op('rsub')
def _(p, a, b, *, alpha=1):
    a = alpha_of(a, alpha)
    return b._two('sub', a) if isinstance(b, Symbol) else a.op('sub', number=number(b), first=True)


OPS['__rsub__'] = lambda p, a, b: b._two('sub', a) if isinstance(b, Symbol) else a.op('sub', number=number(b), first=True)
OPS['__rdiv__'] = lambda p, a, b: b._two('div', a) if isinstance(b, Symbol) else a.op('div', number=number(b), first=True)
OPS['__rpow__'] = lambda p, a, b: b._two('pow', a) if isinstance(b, Symbol) else a.op('pow', number=number(b), first=True)
OPS['__rmatmul__'] = lambda p, a, b: b.op('matmul', a)


@op('div.no_rounding_mode', 'true_divide')
def _(p, a, b, *, rounding_mode=None):
    if rounding_mode:
        raise Skip('rounding')
    return a._two('div', b) if isinstance(a, Symbol) else b.op('div', number=number(a), first=True)


@op('float_power')
def _(p, a, b):
    if not isinstance(a, Symbol):
        return cast(b, torch.float64).op('pow', number=number(a), first=True)
    return cast(a, torch.float64)._two('pow', cast(b, torch.float64) if isinstance(b, Symbol) else b)


@op('clamp')
def _(p, x, low=None, high=None, *, min=None, max=None):
    low, high = low if min is None else min, high if max is None else max
    if isinstance(low, Symbol) or isinstance(high, Symbol):
        return p.op('clamp', x, low, high)
    args = {k: number(v) for k, v in (('low', low), ('high', high)) if v is not None}
    return x.op('clamp', **args)


OPS['clamp_min'] = lambda p, x, m: OPS['clamp'](p, x, m)
OPS['clamp_max'] = lambda p, x, m: OPS['clamp'](p, x, None, m)


@op('where')
def _(p, a, mask, b):
    if isinstance(a, Symbol) and isinstance(b, Symbol):
        return p.op('where', mask, a, b)
    if isinstance(a, Symbol):
        return p.op('where', mask, a, number=number(b))
    return p.op('where', mask, b, number=number(a), first=True)


@op('masked_fill')
def _(p, x, mask, value):
    if isinstance(value, Symbol):
        if value.ndim:
            raise Skip('a value of many')
        return p.op('where', mask, value, x)
    return p.op('masked_fill', x, mask, number=number(value))


OPS['addcmul'] = lambda p, x, a, b, *, value=1: x + (a * b if value == 1 else a * b * value)
OPS['addcdiv'] = lambda p, x, a, b, *, value=1: x + (a / b if value == 1 else a / b * value)
OPS['lerp'] = lambda p, a, b, w: a + (b - a) * w
OPS['dist'] = lambda p, a, b, p_=2: (a - b).op('norm', p=number(p_))
OPS['nn.functional.leaky_relu'] = lambda p, x, negative_slope=0.01, inplace=False: x.op('leaky_relu', slope=negative_slope)
OPS['nn.functional.elu'] = lambda p, x, alpha=1.0, inplace=False: x.op('elu', alpha=alpha)
OPS['nn.functional.gelu'] = lambda p, x, *, approximate='none': x.op(
    'gelu', tanh=one_of(approximate, 'none', 'tanh') == 'tanh')


@op('nn.functional.softplus')
def _(p, x, beta=1, threshold=20):
    if threshold < 20:
        raise Skip('threshold')
    return x.op('softplus', beta=number(beta))


OPS['nn.functional.logsigmoid'] = lambda p, x: -((-x).op('softplus', beta=1.0))
OPS['nn.functional.mish'] = lambda p, x, inplace=False: x * x.op('softplus', beta=1.0).op('tanh')
OPS['nn.functional.softsign'] = lambda p, x: x.op('softsign')
OPS['nn.functional.tanhshrink'] = lambda p, x: x - x.op('tanh')
OPS['nn.functional.celu'] = lambda p, x, alpha=1.0, inplace=False: (x / alpha).op('elu', alpha=1.0) * alpha


@op('nn.functional.selu')
def _(p, x, inplace=False):
    return x.op('elu', alpha=1.6732632423543772848170429916717) * 1.0507009873554804934193349852946


@op('nn.functional.threshold')
def _(p, x, threshold, value, inplace=False):
    return p.op('where', x.op('le', number=number(threshold)), x, number=number(value), first=True)


@op('nn.functional.glu')
def _(p, x, dim=-1):
    n = x.shape[dim] // 2
    a, b = x.op('split', results=2, size=n, axis=dim) if n else (x, x)
    return a * b.op('sigmoid')


@op('nn.functional.dropout')
def _(p, x, p_=0.5, training=True, inplace=False):
    rate = p_
    if training and 0 < rate < 1:
        raise Skip('random numbers')
    return x.op('dropout', p=rate) if training else x.op('clone')


# Reductions.
def reduction(name, dtype_first=True):
    def call(p, x, dim=None, keepdim=False, *, dtype=None, **k):
        only(k)
        return cast(x, dtype).op(name, **axes(dim), keepdim=bool(keepdim))
    return call


for n in ('sum', 'mean', 'prod', 'all', 'any', 'logsumexp'):
    OPS[n] = reduction(n)


@op('count_nonzero')
def _(p, x, dim=None):
    return x.op('ne', number=0.0).op('sum', **axes(dim))


OPS['amax'] = lambda p, x, dim=None, keepdim=False: x.op('max', **axes(dim), keepdim=bool(keepdim))
OPS['amin'] = lambda p, x, dim=None, keepdim=False: x.op('min', **axes(dim), keepdim=bool(keepdim))
OPS['aminmax'] = lambda p, x, *, dim=None, keepdim=False: [OPS['amin'](p, x, dim, keepdim), OPS['amax'](p, x, dim, keepdim)]
for n in ('max', 'min'):
    OPS[n + '.reduction_no_dim'] = lambda p, x, _n=n: x.op(_n)
    OPS[n + '.reduction_with_dim'] = lambda p, x, dim, keepdim=False, _n=n: [
        x.op(_n, axes=[dim], keepdim=bool(keepdim)), x.op('arg' + _n, axis=dim, keepdim=bool(keepdim))]
    OPS['arg' + n] = lambda p, x, dim=None, keepdim=False, _n=n: x.op(
        'arg' + _n, **({} if dim is None else {'axis': dim}), keepdim=bool(keepdim))


def correction_of(unbiased, correction):
    return {'correction': float(unbiased) if correction is None and unbiased is not None else
            1.0 if correction is None else number(correction)}


def spread(name, with_mean=False):
    def call(p, x, *a, dim=None, unbiased=None, correction=None, keepdim=False):
        a = list(a)
        if a and isinstance(a[0], bool):
            unbiased = a.pop(0)
        if a:
            dim = a.pop(0)
        if a:
            unbiased = a.pop(0)
        if a:
            keepdim = a.pop(0)
        y = x.op(name, **axes(dim), keepdim=bool(keepdim), **correction_of(unbiased, correction))
        return [y, x.op('mean', **axes(dim), keepdim=bool(keepdim))] if with_mean else y
    return call


for n, h in (('var', 'variance'), ('std', 'stddev')):
    for suffix in ('', '.unbiased'):
        OPS[n + suffix] = spread(h)
        OPS[f'{n}_mean{suffix}'] = spread(h, True)


def norm(p, x, n=2, dim=None, keepdim=False, *, dtype=None, **k):
    n = k.pop('p_', k.pop('ord', n))
    only(k)
    if n is None or n == 'fro':
        n = 2
    if isinstance(n, str):
        raise Skip('norms of matrices')
    return cast(x, dtype).op('norm', p=number(n), **axes(dim), keepdim=bool(keepdim))


OPS['norm'] = OPS['norm.fro'] = OPS['norm.inf'] = OPS['linalg.vector_norm'] = norm


@op('linalg.norm', 'linalg.norm.subgradients_at_zero')
def _(p, x, ord=None, dim=None, keepdim=False, *, dtype=None):
    rank = x.ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
    if ord is not None and rank != 1:
        raise Skip('norms of matrices')
    return norm(p, x, ord, dim, keepdim, dtype=dtype)


@op('nn.functional.normalize')
def _(p, x, p_=2.0, dim=1, eps=1e-12, out=None):
    n = x.op('norm', p=number(p_), **axes(dim), keepdim=True)
    return x / n.op('clamp', low=eps)


@op('nn.functional.pairwise_distance')
def _(p, a, b, p_=2.0, eps=1e-6, keepdim=False):
    return (a - b + eps).op('norm', p=number(p_), axes=[-1], keepdim=keepdim)


def along(name):
    def call(p, x, dim=None, *a, dtype=None, **k):
        only(k, '_stacklevel')
        if dim is None:
            raise Skip('no axis')
        return cast(x, dtype).op(name, axis=dim)
    return call


for n in ('softmax', 'log_softmax'):
    OPS[n] = OPS[n + '.with_dtype'] = along(n)
OPS['cumsum'] = along('cumsum')
OPS['nn.functional.softmin'] = OPS['nn.functional.softmin.with_dtype'] = (
    lambda p, x, dim, dtype=None, **k: cast(-x, dtype).op('softmax', axis=dim))
OPS['topk'] = lambda p, x, k, dim=-1, largest=True, sorted=True: x.op(
    'top_k', results=2, k=k, axis=dim, largest=bool(largest))


@op('sort')
def _(p, x, dim=-1, descending=False, *, stable=False):
    return x.op('top_k', results=2, k=x.shape[dim] if x.ndim else 1, axis=dim, largest=bool(descending))


OPS['argsort'] = lambda p, x, dim=-1, descending=False, *, stable=False: OPS['sort'](p, x, dim, descending)[1]
OPS['msort'] = lambda p, x: OPS['sort'](p, x, 0)[0]


@op('kthvalue')
def _(p, x, k, dim=-1, keepdim=False):
    y = x.op('top_k', results=2, k=k, axis=dim, largest=False)
    return [v.op('slice', axis=dim, begin=k - 1, end=k) if keepdim else v.op('select', axis=dim, index=k - 1) for v in y]




# Shapes.
def cat(p, parts, dim=0):
    if any(x is None for x in parts):
        raise Skip('an argument that is None')
    parts = [x for x in parts if tuple(x.shape) != (0,)] or list(parts)
    return p.op('concatenate', *parts, axis=dim)


OPS['cat'] = lambda p, parts, dim=0, **k: (only(k), cat(p, parts, dim))[1]
OPS['stack'] = lambda p, parts, dim=0: p.op('stack', *parts, axis=dim)


def at_least(p, x, rank):
    n = x.ndim
    if n >= rank:
        return x
    shape = list(x.shape)
    shape = {1: [1], 2: [1] + shape if n else [1, 1], 3: [1, 1, 1] if n == 0 else [1] + shape + [1] if n == 1 else shape + [1]}[rank]
    return Symbol(p, reshape(x, shape).number, x.t.reshape(shape))


for rank in (1, 2, 3):
    OPS[f'atleast_{rank}d'] = lambda p, *x, _r=rank: (
        [at_least(p, t, _r).op('clone') for t in (x[0] if isinstance(x[0], (list, tuple)) else x)]
        if len(x) > 1 or isinstance(x[0], (list, tuple)) else at_least(p, x[0], _r).op('clone'))


@op('hstack')
def _(p, parts):
    parts = [at_least(p, x, 1) for x in parts]
    return cat(p, parts, 0 if not parts or parts[0].ndim == 1 else 1)


OPS['vstack'] = lambda p, parts: cat(p, [at_least(p, x, 2) for x in parts], 0)
OPS['dstack'] = lambda p, parts: cat(p, [at_least(p, x, 3) for x in parts], 2)
OPS['column_stack'] = lambda p, parts: cat(
    p, [x if x.ndim > 1 else Symbol(p, reshape(x, (x.numel(), 1)).number, x.t.reshape(-1, 1)) for x in parts], 1)


def split_by(p, x, sizes, dim):
    if len(sizes) == 1:
        return [x.op('clone')]
    return [y.op('clone') for y in x.op('split', results=len(sizes), sizes=list(sizes), axis=dim)]


@op('split', 'split.list_args', 'split_with_sizes', 'split_with_sizes_copy', 'unsafe_split')
def _(p, x, size, dim=0):
    n = x.shape[dim]
    if isinstance(size, int):
        sizes = [min(size, n - i) for i in range(0, n, size)] if size else [0]
        return split_by(p, x, sizes or [0], dim)
    return split_by(p, x, size, dim)


@op('chunk', 'unsafe_chunk')
def _(p, x, chunks, dim=0):
    return split_by(p, x, [t.shape[dim] for t in x.t.chunk(chunks, dim)], dim)


def tensor_split(p, x, where, dim=0):
    if isinstance(where, Symbol):
        raise Skip('places in a tensor')
    return split_by(p, x, [t.shape[dim] for t in x.t.tensor_split(where, dim)], dim)


OPS['tensor_split'] = tensor_split
OPS['hsplit'] = lambda p, x, n: tensor_split(p, x, n, 0 if x.ndim == 1 else 1)
OPS['vsplit'] = lambda p, x, n: tensor_split(p, x, n, 0)
OPS['dsplit'] = lambda p, x, n: tensor_split(p, x, n, 2)
OPS['unbind'] = OPS['unbind_copy'] = lambda p, x, dim=0: [
    x.op('select', axis=dim, index=i).op('clone')
    for i in range(x.shape[dim] if -x.ndim <= dim < x.ndim else 1)]  # outside of the axes, for heed to refuse
for n in ('tril', 'triu'):
    OPS[n] = lambda p, x, diagonal=0, _n=n: x.op(_n, diagonal=diagonal)


@op('repeat', 'tile')
def _(p, x, *counts):
    counts = shape_of(counts)
    return x.op('repeat', sizes=[1] * (x.ndim - len(counts)) + counts)


OPS['flip'] = lambda p, x, *dims, **k: x.op('flip', axes=list(k.get('dims', shape_of(dims)))) if list(
    k.get('dims', shape_of(dims))) else x.op('clone')
OPS['fliplr'] = lambda p, x: x.op('flip', axes=[1])
OPS['flipud'] = lambda p, x: x.op('flip', axes=[0])
OPS['gather'] = lambda p, x, dim, index, **k: (only(k), p.op('gather', x, index, axis=dim))[1]


@op('take_along_dim')
def _(p, x, index, dim=None):
    if dim is None:
        return p.op('gather', reshape(x, [-1]), reshape(index, [-1]), axis=0)
    if any(i > n for a, (i, n) in enumerate(zip(index.shape, x.shape)) if a != positive(dim, x.ndim)) or any(
            i != n for a, (i, n) in enumerate(zip(index.shape, x.shape)) if a != positive(dim, x.ndim)):
        raise Skip('an index that broadcasts')
    return p.op('gather', x, index, axis=dim)


@op('index_select')
def _(p, x, dim, index):
    if x.ndim == 0 or index.ndim == 0:
        raise Skip('index_select of scalars')
    return p.op('index_select', x, index, axis=dim)


OPS['scatter_add'] = lambda p, x, dim, index, source: p.op('scatter_add', x, index, source, axis=dim)


@op('index_add')
def _(p, x, dim, index, source, *, alpha=1):
    if x.ndim == 0 or source.ndim == 0 or index.ndim == 0:
        raise Skip('index_add of scalars')
    view = [1] * x.ndim
    view[dim] = -1
    wide = reshape(index, view).op('expand', sizes=list(source.shape)).op('contiguous')
    return p.op('scatter_add', x, wide, source if alpha == 1 else source * alpha, axis=dim)


@op('select')
def _(p, x, dim, index):
    return x.op('select', axis=dim, index=index).op('clone')


@op('narrow', 'narrow_copy')
def _(p, x, dim, start, length):
    if isinstance(start, Symbol):
        start = int(start.t)
    start = positive(start, x.shape[dim])
    return x.op('slice', axis=dim, begin=start, end=start + length).op('clone')


@op('slice')
def _(p, x, dim=0, start=None, end=None, step=1):
    return x.op('slice', axis=dim, begin=start or 0, end=x.shape[dim] if end is None else end, step=step or 1).op('clone')


@op('__getitem__')
def _(p, x, index):
    if isinstance(index, list) and not any(isinstance(i, slice) for i in index):
        raise Skip('an index that is a list')
    index = index if isinstance(index, (tuple, list)) else (index,)
    y, axis = x, 0
    for i in index:
        if isinstance(i, bool) or not isinstance(i, (int, slice)):
            raise Skip('an index that is no number and no slice')
        if isinstance(i, int):
            y = y.op('select', axis=axis, index=i)
        else:
            y = y.op('slice', axis=axis, begin=i.start or 0, end=x.shape[axis] if i.stop is None else i.stop,
                     step=i.step or 1)
            axis += 1
    return y.op('clone')


OPS['transpose'] = OPS['transpose_copy'] = lambda p, x, a, b: (
    x.op('transpose', a=a, b=b).op('clone') if x.ndim else x.op('clone'))
OPS['T'] = OPS['t'] = OPS['t_copy'] = OPS['H'] = lambda p, x: (
    x.op('transpose', a=0, b=-1).op('clone') if x.ndim == 2 else x.op('clone'))
OPS['mT'] = OPS['mH'] = lambda p, x: x.op('transpose', a=-1, b=-2).op('clone')
OPS['permute'] = OPS['permute_copy'] = lambda p, x, *dims: x.op('permute', axes=shape_of(dims)).op('clone')


@op('movedim')
def _(p, x, a, b):
    a, b = ([a], [b]) if isinstance(a, int) else (list(a), list(b))
    a, b = [positive(i, x.ndim) for i in a], [positive(i, x.ndim) for i in b]
    order = [None] * x.ndim
    for i, j in zip(a, b):
        order[j] = i
    rest = iter(i for i in range(x.ndim) if i not in a)
    return x.op('permute', axes=[next(rest) if i is None else i for i in order]).op('clone')


OPS['unsqueeze'] = OPS['unsqueeze_copy'] = lambda p, x, dim: x.op('unsqueeze', axis=dim).op('clone')


@op('squeeze', 'squeeze_copy', 'squeeze.multiple')
def _(p, x, dim=None):
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    for d in sorted({positive(i, x.ndim) for i in dims}, reverse=True):
        if x.ndim and x.shape[d] == 1:
            x = Symbol(p, x.op('squeeze', axis=d).number, x.t.squeeze(d))
    return x.op('clone')


@op('expand', 'expand_copy', 'broadcast_to')
def _(p, x, *shape, **k):
    shape = shape_of(shape)
    front = len(shape) - x.ndim
    shape = [x.shape[i - front] if s == -1 else s for i, s in enumerate(shape)]
    return x.op('expand', sizes=shape).op('clone')


OPS['expand_as'] = lambda p, x, y: x.op('expand', sizes=list(y.shape)).op('clone')


@op('broadcast_tensors')
def _(p, *xs):
    shape = list(torch.broadcast_shapes(*[x.shape for x in xs]))
    return [x.op('expand', sizes=shape).op('clone') for x in xs]


OPS['view'] = OPS['view_copy'] = OPS['reshape'] = lambda p, x, *shape: (
    reshape(x, shape_of(shape)).op('clone')
    if not isinstance(shape[0], torch.dtype) else (_ for _ in ()).throw(Skip('a view as another dtype')))
OPS['view_as'] = OPS['reshape_as'] = lambda p, x, y: reshape(x, y.shape).op('clone')
OPS['ravel'] = lambda p, x: reshape(x, [x.numel()]).op('clone')
OPS['flatten'] = lambda p, x, start_dim=0, end_dim=-1: x.op('flatten', **{'from': start_dim, 'to': end_dim}).op('clone')
OPS['unflatten'] = lambda p, x, dim, sizes: reshape(x, x.t.unflatten(dim, sizes).shape).op('clone')


@op('roll')
def _(p, x, shifts, dims=None):
    if dims is None or dims == () or dims == []:
        n = x.numel()
        if not n:
            return x.op('clone')
        s = (shifts if isinstance(shifts, int) else shifts[0]) % n
        y = reshape(x, [n])
        y = p.op('concatenate', y.op('slice', axis=0, begin=n - s, end=n), y.op('slice', axis=0, begin=0, end=n - s), axis=0)
        return reshape(y, x.shape)
    shifts, dims = ([shifts], [dims]) if isinstance(shifts, int) else (shifts, [dims] if isinstance(dims, int) else dims)
    y = x
    for shift, d in zip(shifts, dims):
        n = x.shape[d]
        if n:
            s = shift % n
            y = p.op('concatenate', y.op('slice', axis=d, begin=n - s, end=n), y.op('slice', axis=d, begin=0, end=n - s), axis=d)
    return y.op('clone')


@op('repeat_interleave')
def _(p, x, repeats, dim=None, **k):
    if isinstance(repeats, Symbol):
        raise Skip('repeats in a tensor')
    if dim is None:
        x, dim = Symbol(p, reshape(x, [x.numel()]).number, x.t.reshape(-1)), 0
    d, shape = positive(dim, x.ndim), list(x.shape)
    y = x.op('unsqueeze', axis=d + 1).op('expand', sizes=shape[:d + 1] + [repeats] + shape[d + 1:])
    return y.op('reshape', sizes=shape[:d] + [shape[d] * repeats] + shape[d + 1:])


@op('meshgrid.variadic_tensors', 'meshgrid.list_of_tensors')
def _(p, *xs, indexing='ij'):
    xs = xs[0] if isinstance(xs[0], (list, tuple)) else xs
    sizes = [x.numel() for x in xs]
    out = []
    for i, x in enumerate(xs):
        y = reshape(x, [n if j == i else 1 for j, n in enumerate(sizes)]).op('expand', sizes=sizes)
        if indexing == 'xy' and len(xs) > 1:
            y = y.op('transpose', a=0, b=1)
        out.append(y.op('clone'))
    return out


for n, d in (('float', torch.float32), ('double', torch.float64), ('bfloat16', torch.bfloat16), ('bool', torch.bool)):
    OPS[n] = lambda p, x, _d=d, **k: cast(x, _d).op('clone')


@op('int')
def _(p, x, **k):
    if x.t.is_floating_point():
        raise Skip('what is beyond int32')
    return cast(x, torch.int32).op('clone')


@op('to')
def _(p, x, *a, **k):
    dtype = next((d for d in a if isinstance(d, torch.dtype)), k.get('dtype'))
    return cast(x, dtype).op('clone')


def filled(value):
    def call(p, x, *a, dtype=None, **k):
        dtype = dtype or x.dtype
        if dtype not in DTYPES:
            raise Skip(f'the dtype {dtype}')
        return p.op('full', sizes=list(x.shape), number=number(value if value is not None else a[0]), dtype=DTYPES[dtype])
    return call


OPS['zeros_like'], OPS['ones_like'], OPS['full_like'] = filled(0), filled(1), filled(None)


# Products.
OPS['matmul'] = OPS['mm'] = OPS['bmm'] = OPS['mv'] = OPS['dot'] = OPS['vdot'] = lambda p, a, b: a.op('matmul', b)


@op('inner')
def _(p, a, b):
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    if b.ndim == 1:
        return a.op('matmul', b)
    if b.ndim == 2:
        return a.op('matmul', b.op('transpose', a=0, b=1))
    raise Skip('inner of more axes')


def wide(x):
    """x in float32 if it is bfloat16, as required for the other operands of a bfloat16 product."""
    return x.op('to', dtype='float32') if x is not None and x.dtype == torch.bfloat16 else x


def affine(p, x, product, beta, alpha):
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (x if beta == 1 else x * beta) + product


for n in ('addmm', 'addmm.decomposed', 'addmv', 'baddbmm'):
    OPS[n] = lambda p, x, a, b, *, beta=1, alpha=1: affine(p, wide(x), a.op('matmul', b), beta, alpha)
OPS['addbmm'] = lambda p, x, a, b, *, beta=1, alpha=1: affine(
    p, wide(x), a.op('matmul', b).op('sum', axes=[0]), beta, alpha)
outer = lambda p, a, b: a.op('unsqueeze', axis=1) * b.op('unsqueeze', axis=0)
OPS['outer'] = outer
OPS['addr'] = lambda p, x, a, b, *, beta=1, alpha=1: affine(p, x, outer(p, a, b), beta, alpha)


@op('linalg.multi_dot')
def _(p, xs):
    y = xs[0]
    for x in xs[1:]:
        y = y.op('matmul', x)
    return y


OPS['linalg.vecdot'] = lambda p, a, b, *, dim=-1: (a * b).op('sum', axes=[dim])
OPS['nn.functional.linear'] = lambda p, x, w, b=None: (
    p.op('linear', x, w, wide(b)) if w.ndim == 2 else (_ for _ in ()).throw(Skip('a weight that is a vector')))


# Ops that heed does not have. The table decomposes their arguments, so heed cannot detect wrong arguments.
TAKEN_APART = {'roll', 'movedim', 'hsplit', 'vsplit', 'dsplit', 't', 't_copy', 'narrow', 'narrow_copy'}


# Neural networks.
@op('nn.functional.embedding')
def _(p, weight, index, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise Skip('option of embedding')
    # Samples have the order (weight, index) or that of F.embedding.
    if weight.t.is_floating_point() is False:
        weight, index = index, weight
    return p.op('embedding', index, weight, **({} if padding_idx is None else {'padding': padding_idx}))


@op('nn.functional.one_hot')
def _(p, x, num_classes=-1):
    n = num_classes if num_classes >= 0 else int(x.t.max()) + 1
    return x.op('one_hot', classes=n, dtype='int32')


def last_axes(p, x, shape, weights, f):
    """Applies f over the last axes, joined to one axis."""
    n, rank = math.prod(shape), len(shape)
    if rank == 0:
        raise Skip('a norm over no axes')
    flat_x = reshape(x, list(x.shape[:x.ndim - rank]) + [n])
    return reshape(f(flat_x, [None if w is None else reshape(w, [n]) for w in weights]), x.shape)


@op('nn.functional.layer_norm')
def _(p, x, shape, weight=None, bias=None, eps=1e-5):
    return last_axes(p, x, shape, [weight, bias], lambda y, w: p.op('layer_norm', y, *w, eps=eps))


@op('nn.functional.rms_norm')
def _(p, x, shape, weight=None, eps=None):
    e = float(torch.finfo(x.dtype).eps) if eps is None else eps
    return last_axes(p, x, shape, [weight], lambda y, w: p.op('rms_norm', y, *w, eps=e))


@op('nn.functional.scaled_dot_product_attention')
def _(p, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        raise Skip('random numbers')
    if is_causal and q.shape[-2] != k.shape[-2]:
        raise Skip('causal, aligned at the beginnings: heed aligns the ends')
    if q.ndim < 3 or q.shape[:-2] != k.shape[:-2] and not enable_gqa:
        raise Skip('batches that broadcast')
    n = q.ndim
    def four(x):
        shape = list(x.shape)
        return reshape(x, ([math.prod(shape[:n - 3])] if n > 3 else [1]) + shape[n - 3:])
    mask = bias = None
    if attn_mask is not None:
        m = attn_mask
        if m.ndim > 4 or n > 4:
            raise Skip('a mask of more axes')
        m = m if m.ndim >= 3 or m.ndim == 2 else m
        mask, bias = (m, None) if m.dtype == torch.bool else (None, m)
        if bias is not None and bias.dtype != q.dtype:
            raise Skip('a bias of another dtype')
    y = p.op('attention', four(q), four(k), four(v), mask, bias, causal=bool(is_causal),
             **({} if scale is None else {'scale': number(scale)}))
    return reshape(y, list(q.shape[:-1]) + [v.shape[-1]])


def loss(name):
    def call(p, x, target, *, reduction='mean', **k):
        only(k)
        return x.op(name, target, reduction=one_of(reduction, 'none', 'mean', 'sum'))
    return call


OPS['nn.functional.mse_loss'], OPS['nn.functional.l1_loss'] = loss('mse_loss'), loss('l1_loss')
OPS['nn.functional.huber_loss'] = lambda p, x, t, reduction='mean', delta=1.0, **k: (
    only(k), x.op('huber_loss', t, delta=number(delta), reduction=one_of(reduction, 'none', 'mean', 'sum')))[1]


@op('nn.functional.smooth_l1_loss')
def _(p, x, t, *, reduction='mean', beta=1.0, **k):
    only(k)
    if beta == 0:
        return x.op('l1_loss', t, reduction=reduction)
    return x.op('huber_loss', t, delta=number(beta), reduction=reduction) / beta


@op('nn.functional.binary_cross_entropy_with_logits')
def _(p, x, t, weight=None, *, reduction='mean', pos_weight=None, **k):
    only(k)
    return p.op('binary_cross_entropy_with_logits', x, t, weight, pos_weight, reduction=reduction)


OPS['nn.functional.kl_div'] = lambda p, x, t, *, reduction='mean', log_target=False, **k: (
    only(k), x.op('kl_div', t, reduction=reduction, log_target=bool(log_target)))[1]


@op('nn.functional.cross_entropy')
def _(p, x, t, weight=None, *, ignore_index=-100, reduction='mean', label_smoothing=0.0, **k):
    only(k)
    if t.dtype.is_floating_point:
        raise Skip('targets that are probabilities')
    n = x.ndim
    if n > 2:
        x = x.op('permute', axes=[0] + list(range(2, n)) + [1])
    return p.op('cross_entropy', x, t, weight, ignore_index=ignore_index, reduction=reduction,
                label_smoothing=label_smoothing)


@op('nn.functional.linear_cross_entropy', 'nn.functional.linear_cross_entropy.chunked',
    'nn.functional.linear_cross_entropy.chunked_none')
def _(p, x, w, t, *a, linear_bias=None, bias=None, weight=None, reduction='mean', ignore_index=-100, label_smoothing=0.0, **k):
    if a:
        raise Skip('positional options')
    for name, v in k.items():
        if name not in ('chunking_method', 'options', 'batch_chunk_size', 'acc_dtype', 'acc_policy') and v is not None:
            raise Skip(f'option {name}')
    if t.dtype.is_floating_point:
        raise Skip('targets that are probabilities')
    if x.ndim > 2 or w.ndim != 2:
        raise Skip('classes on the second axis of more')
    b = linear_bias if linear_bias is not None else bias
    return p.op('linear_cross_entropy', x, w, wide(b), t, wide(weight), reduction=reduction, ignore_index=ignore_index,
                label_smoothing=label_smoothing)


# Modules: call(program, module, weights by name, *inputs).
def functional(name, f):
    return lambda p, m, w, *a, **k: f(p, m, w, *a, **k)


MODULES = {
    'nn.Linear': lambda p, m, w, input: OPS['nn.functional.linear'](p, input, w['weight'], w.get('bias')),
    'nn.ReLU': lambda p, m, w, x: x.op('relu'),
    'nn.LeakyReLU': lambda p, m, w, x: x.op('leaky_relu', slope=m.negative_slope),
    'nn.ELU': lambda p, m, w, x: x.op('elu', alpha=m.alpha),
    'nn.CELU': lambda p, m, w, x: OPS['nn.functional.celu'](p, x, m.alpha),
    'nn.SELU': lambda p, m, w, x: OPS['nn.functional.selu'](p, x),
    'nn.GELU': lambda p, m, w, x: x.op('gelu', tanh=m.approximate == 'tanh'),
    'nn.GLU': lambda p, m, w, x: OPS['nn.functional.glu'](p, x, m.dim),
    'nn.SiLU': lambda p, m, w, x: x.op('silu'),
    'nn.Mish': lambda p, m, w, x: OPS['nn.functional.mish'](p, x),
    'nn.Sigmoid': lambda p, m, w, x: x.op('sigmoid'),
    'nn.LogSigmoid': lambda p, m, w, x: OPS['nn.functional.logsigmoid'](p, x),
    'nn.Tanh': lambda p, m, w, x: x.op('tanh'),
    'nn.Tanhshrink': lambda p, m, w, x: OPS['nn.functional.tanhshrink'](p, x),
    'nn.Softsign': lambda p, m, w, x: OPS['nn.functional.softsign'](p, x),
    'nn.Softplus': lambda p, m, w, x: OPS['nn.functional.softplus'](p, x, m.beta, m.threshold),
    'nn.Threshold': lambda p, m, w, x: OPS['nn.functional.threshold'](p, x, m.threshold, m.value),
    'nn.Softmax': lambda p, m, w, x: x.op('softmax', axis=m.dim),
    'nn.Softmin': lambda p, m, w, x: (-x).op('softmax', axis=m.dim),
    'nn.LogSoftmax': lambda p, m, w, x: x.op('log_softmax', axis=m.dim),
    'nn.LayerNorm': lambda p, m, w, x: OPS['nn.functional.layer_norm'](
        p, x, m.normalized_shape, w.get('weight'), w.get('bias'), m.eps),
    'nn.RMSNorm': lambda p, m, w, x: OPS['nn.functional.rms_norm'](p, x, m.normalized_shape, w.get('weight'), m.eps),
    'nn.MSELoss': lambda p, m, w, x, t: x.op('mse_loss', t, reduction=m.reduction),
    'nn.L1Loss': lambda p, m, w, x, t: x.op('l1_loss', t, reduction=m.reduction),
    'nn.HuberLoss': lambda p, m, w, x, t: x.op('huber_loss', t, delta=m.delta, reduction=m.reduction),
    'nn.SmoothL1Loss': lambda p, m, w, x, t: OPS['nn.functional.smooth_l1_loss'](
        p, x, t, reduction=m.reduction, beta=m.beta),
    'nn.KLDivLoss': lambda p, m, w, x, t: x.op('kl_div', t, reduction=m.reduction, log_target=m.log_target),
}


def _buffer(p, t):
    return None if t is None else p.input(t.detach(), False)


MODULES['nn.BCEWithLogitsLoss'] = lambda p, m, w, x, t: p.op(
    'binary_cross_entropy_with_logits', x, t, _buffer(p, m.weight), _buffer(p, m.pos_weight), reduction=m.reduction)
MODULES['nn.CrossEntropyLoss'] = lambda p, m, w, x, t: OPS['nn.functional.cross_entropy'](
    p, x, t, _buffer(p, m.weight), ignore_index=m.ignore_index, reduction=m.reduction, label_smoothing=m.label_smoothing)


def module_embedding(p, m, w, x):
    return OPS['nn.functional.embedding'](p, w['weight'], x, m.padding_idx, m.max_norm, m.norm_type,
                                          m.scale_grad_by_freq, m.sparse)


MODULES['nn.Embedding'] = module_embedding


def masks(p, attn, padding, x, heads):
    """Converts PyTorch's masks, where true means masked, to heed's mask, bias and key mask."""
    mask = bias = keys = None
    if attn is not None:
        if attn.ndim == 3:  # one per sequence and head
            attn = Symbol(p, reshape(attn, [-1, heads, *attn.shape[1:]]).number, attn.t)
        if not attn.t.dtype.is_floating_point and attn.t.dtype != torch.bool:
            raise Skip('a mask of whole numbers')
        if attn.t.dtype == torch.bool:
            mask = attn.op('logical_not')
        else:
            bias = attn
    if padding is not None:
        if padding.dtype != torch.bool:
            raise Skip('padding that is added')
        keys = padding.op('logical_not')
        if x.ndim == 2:
            keys = keys.op('unsqueeze', axis=0)
    return mask, bias, keys


def attention_parameters(p, w, prefix, heads_name, own, width):
    """The parameters of nn.MultiheadAttention at `prefix`, by heed's names."""
    def get(n):
        return w.get(prefix + n)
    out = {}
    bias = get('in_proj_bias')
    weight = get('in_proj_weight')
    if weight is not None:
        parts = {'qkv': (0, 3)} if own == 'self' else {'q': (0, 1), 'kv': (1, 3)} if own == 'memory' else {
            'q': (0, 1), 'k': (1, 2), 'v': (2, 3)}
        for name, (a, b) in parts.items():
            out[name + '.weight'] = (weight, a * width, b * width)
            if bias is not None:
                out[name + '.bias'] = (bias, a * width, b * width)
    else:
        for i, n in enumerate('qkv'):
            out[n + '.weight'] = (get(n + '_proj_weight'), 0, None)
            if bias is not None:
                out[n + '.bias'] = (bias, i * width, (i + 1) * width)
    out['proj.weight'] = (get('out_proj.weight'), 0, None)
    if get('out_proj.bias') is not None:
        out['proj.bias'] = (get('out_proj.bias'), 0, None)
    return {heads_name + k: v for k, v in out.items()}


class Parts:
    """Parameters that are parts of PyTorch's parameters: separate inputs, whose gradients are concatenated."""

    def __init__(self, p, named):
        self.names = {}
        for name, (whole, begin, end) in named.items():
            begin, end = begin, whole.shape[0] if end is None else end
            part = p.input(whole.t[begin:end].detach().clone(), True)
            p.parts.setdefault(whole.number[1], []).append(part.number[1])
            self.names[name] = part.number


def _with_parts(Program):
    init = Program.__init__

    def start(self):
        init(self)
        self.parts = {}

    def gradients(self, given):
        given = list(given)
        for whole, parts in self.parts.items():
            if all(given[i] is None for i in parts):
                continue
            given[whole] = torch.cat([torch.zeros_like(self.inputs[i][0]) if given[i] is None else given[i] for i in parts])
        return given

    Program.__init__, Program.gradients = start, gradients


_with_parts(Program)


def batched(x, first):
    if x.ndim == 2:
        return x.op('unsqueeze', axis=0)
    return x if first else x.op('transpose', a=0, b=1)


def unbatched(y, x, first):
    """y in the layout of x."""
    if x.ndim == 2:
        return y.op('squeeze', axis=0)
    return y if first else y.op('transpose', a=0, b=1)


def multi_head(p, m, w, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
               average_attn_weights=True, is_causal=False):
    if m.bias_k is not None or m.add_zero_attn:
        raise Skip('added keys')
    if m.dropout and m.training:
        raise Skip('random numbers')
    p.compared = 1  # the second result, weights, is averaged over heads
    return _multi_head(p, m, w, query, key, value, key_padding_mask, attn_mask)


def _multi_head(p, m, w, query, key, value, key_padding_mask, attn_mask):
    own = 'self' if query.t is key.t and key.t is value.t else 'apart'
    if own == 'self' and not m._qkv_same_embed_dim:
        own = 'apart'
    parts = Parts(p, attention_parameters(p, w, '', '', own, m.embed_dim))
    args = {'width': m.embed_dim, 'heads': m.num_heads, 'bias': m.in_proj_bias is not None,
            **({} if own == 'self' else {'memory_width': m.kdim, 'value_width': m.vdim})}
    q = batched(query, m.batch_first)
    k, v = (None, None) if own == 'self' else (batched(key, m.batch_first), batched(value, m.batch_first))
    y = p.op('MultiHeadAttention', q, k, v, *masks(p, attn_mask, key_padding_mask, query, m.num_heads),
             parameters=parts.names, **args)
    return unbatched(y, query, m.batch_first)


MODULES['nn.MultiheadAttention'] = multi_head


def layer_parameters(p, w, layer, to, prefix, decoder):
    width = layer.linear1.in_features
    named = attention_parameters(p, w, prefix + 'self_attn.', to + 'attention.', 'self', width)
    if decoder:
        named |= attention_parameters(p, w, prefix + 'multihead_attn.', to + 'cross.', 'memory', width)
    norms = {'norm1': 'norm1', 'norm2': 'norm_cross', 'norm3': 'norm2'} if decoder else {'norm1': 'norm1', 'norm2': 'norm2'}
    for theirs, ours in {**norms, 'linear1': 'mlp.up', 'linear2': 'mlp.down'}.items():
        for part in ('weight', 'bias'):
            if f'{prefix}{theirs}.{part}' in w:
                named[f'{to}{ours}.{part}'] = (w[f'{prefix}{theirs}.{part}'], 0, None)
    return named


def transformer(p, m, w, layers, prefixes, x, memory, own, cross, norm_prefix=None):
    first = layers[0]
    if any(d.p for d in m.modules() if isinstance(d, torch.nn.Dropout)) and m.training:
        raise Skip('random numbers')
    activation = {torch.nn.functional.relu: 'relu', torch.nn.functional.gelu: 'gelu'}.get(
        first.activation if not isinstance(first.activation, torch.nn.Module) else
        {torch.nn.ReLU: torch.nn.functional.relu, torch.nn.GELU: torch.nn.functional.gelu}.get(type(first.activation)))
    if activation is None:
        raise Skip('another activation')
    if first.norm1.eps != 1e-5:
        raise Skip('eps of the norms')
    named = {}
    for i, prefix in enumerate(prefixes):
        named |= layer_parameters(p, w, layers[i], f'blocks.{i}.', prefix, memory is not None)
    if norm_prefix is not None:
        for part in ('weight', 'bias'):
            if norm_prefix + part in w:
                named['norm.' + part] = (w[norm_prefix + part], 0, None)
    batch_first = first.self_attn.batch_first
    y = p.op('Transformer', batched(x, batch_first), None if memory is None else batched(memory, batch_first), *own, *cross,
             parameters=Parts(p, named).names, width=first.linear1.in_features, heads=first.self_attn.num_heads,
             hidden=first.linear1.out_features, layers=len(layers), activation=activation,
             norm_first=first.norm_first, bias=first.linear1.bias is not None, last_norm=norm_prefix is not None,
             **({} if memory is None else {'memory_width': first.linear1.in_features}))
    return unbatched(y, x, batch_first)


def encoder_layer(p, m, w, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
    return transformer(p, m, w, [m], [''], src, None, masks(p, src_mask, src_key_padding_mask, src, m.self_attn.num_heads),
                       (None,) * 3)


def encoder(p, m, w, src, mask=None, src_key_padding_mask=None, is_causal=None):
    return transformer(p, m, w, list(m.layers), [f'layers.{i}.' for i in range(len(m.layers))], src, None,
                       masks(p, mask, src_key_padding_mask, src, m.layers[0].self_attn.num_heads), (None,) * 3, None if m.norm is None else 'norm.')


def decoder_layer(p, m, w, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                  memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
    return transformer(p, m, w, [m], [''], tgt, memory, masks(p, tgt_mask, tgt_key_padding_mask, tgt, m.self_attn.num_heads),
                       masks(p, memory_mask, memory_key_padding_mask, memory, m.self_attn.num_heads))


MODULES |= {'nn.TransformerEncoderLayer': encoder_layer, 'nn.TransformerEncoder': encoder,
            'nn.TransformerDecoderLayer': decoder_layer}

# Optimizers: PyTorch's defaults for the options that heed has.
OPTIMIZERS = {
    'SGD': {'lr': 1e-3, 'momentum': 0, 'dampening': 0, 'weight_decay': 0, 'nesterov': False, 'maximize': False},
    'Adam': {'lr': 1e-3, 'betas': (0.9, 0.999), 'eps': 1e-8, 'weight_decay': 0, 'amsgrad': False, 'maximize': False},
    'AdamW': {'lr': 1e-3, 'betas': (0.9, 0.999), 'eps': 1e-8, 'weight_decay': 1e-2, 'amsgrad': False, 'maximize': False},
    'RMSprop': {'lr': 1e-2, 'alpha': 0.99, 'eps': 1e-8, 'weight_decay': 0, 'momentum': 0, 'centered': False,
                'maximize': False},
    'Adagrad': {'lr': 1e-2, 'lr_decay': 0, 'weight_decay': 0, 'initial_accumulator_value': 0, 'eps': 1e-10,
                'maximize': False},
    'Adafactor': {'lr': 1e-2, 'beta2_decay': -0.8, 'eps': (None, 1e-3), 'd': 1.0, 'weight_decay': 0, 'maximize': False},
}


def optimizer(p, name, options, start, steps, twice=''):
    """`twice`: the parameter is given twice, 'in one' group or 'in two'."""
    options = dict(options)
    for irrelevant in ('foreach', 'fused', 'capturable', 'differentiable'):
        options.pop(irrelevant, None)
    unknown = set(options) - set(OPTIMIZERS[name])
    if unknown:
        raise Skip(f'option {sorted(unknown)[0]} of {name}')
    args = {}
    for k, v in options.items():
        if isinstance(v, torch.Tensor):
            if v.numel() != 1:
                raise Skip('a rate that is a tensor')
            v = float(v)
        if k == 'betas':
            args['beta1'], args['beta2'] = float(v[0]), float(v[1])
        elif k == 'eps' and isinstance(v, tuple):
            args |= {name: float(e) for name, e in zip(('eps1', 'eps2'), v) if e is not None}
        else:
            args[k] = v if isinstance(v, bool) else number(v)
    return p.op('optimizer', start, *steps, kind=name, twice=twice, **args)


def optimizer_error(message, expressed, options):
    """The program of heed for an error input that PyTorch's optimizers refuse with `message`."""
    if 'duplicate parameters' in message:
        return expressed({}, 'in one')
    if 'more than one parameter group' in message:
        return expressed({}, 'in two')

    def types(*_):
        raise Skip('arguments of types that C++ does not take')

    takes = all(isinstance(v, (int, float)) for o in options.values() for v in (o if isinstance(o, tuple) else [o]))
    return expressed(options) if options and takes else types


def constructed(name, options):
    """The program of heed for a module whose construction PyTorch refuses."""
    def embedding(p):
        index = p.input(torch.zeros(1, dtype=torch.int32), False)
        return p.op('Embedding', index, count=options['num_embeddings'], width=options['embedding_dim'])

    def types(p):
        raise Skip('arguments of types that C++ does not take')

    return embedding if name == 'nn.Embedding' else types


# Extreme values: number of inputs, PyTorch's function, heed's. Three: rows, along their last axis.
F = torch.nn.functional
EDGES = {
    **{n: (1, getattr(torch, n), OPS[n]) for n in (
        'neg', 'abs', 'sign', 'square', 'sqrt', 'rsqrt', 'exp', 'expm1', 'log', 'log1p', 'sin', 'cos', 'erf', 'sigmoid',
        'tanh', 'reciprocal', 'isnan', 'isfinite')},
    **{n: (1, getattr(F, n), OPS['nn.functional.' + n]) for n in (
        'relu', 'silu', 'leaky_relu', 'elu', 'gelu', 'softsign', 'logsigmoid')},
    # PyTorch returns x above the threshold; at 40 float64 sees no difference.
    'softplus': (1, lambda x: F.softplus(x, threshold=40), lambda p, x: x.op('softplus', beta=1.0)),
    'gelu_tanh': (1, lambda x: F.gelu(x, approximate='tanh'), lambda p, x: x.op('gelu', tanh=True)),
    'clamp': (1, lambda x: x.clamp(-1, 2), lambda p, x: x.op('clamp', low=-1.0, high=2.0)),
    **{f'pow {e}': (1, lambda x, e=e: x.pow(e), lambda p, x, e=e: x.op('pow', number=e))
       for e in (0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.5, -3.0)},
    **{n: (2, getattr(torch, n), OPS[m]) for n, m in (
        ('add', 'add'), ('sub', 'sub'), ('mul', 'mul'), ('div', 'div.no_rounding_mode'), ('pow', 'pow'),
        ('maximum', 'maximum'), ('minimum', 'minimum'), ('eq', 'eq'), ('lt', 'lt'), ('le', 'le'))},
    'clamp of tensors': (2, lambda x, y: torch.clamp(x, min=y), lambda p, x, y: p.op('clamp', x, y, None)),
    'where': (2, lambda x, y: torch.where(x < y, x, y), lambda p, x, y: p.op('where', x.op('lt', y), x, y)),
    'mse_loss': (2, lambda x, y: F.mse_loss(x, y, reduction='none'), lambda p, x, y: x.op('mse_loss', y, reduction='none')),
    'l1_loss': (2, lambda x, y: F.l1_loss(x, y, reduction='none'), lambda p, x, y: x.op('l1_loss', y, reduction='none')),
    'huber_loss': (2, lambda x, y: F.huber_loss(x, y, reduction='none'),
                   lambda p, x, y: x.op('huber_loss', y, delta=1.0, reduction='none')),
    **{n: (3, lambda x, n=n: getattr(torch, n)(x, -1), lambda p, x, n=n: x.op(n, axes=[-1])) for n in (
        'sum', 'mean', 'logsumexp', 'prod')},
    **{n: (3, lambda x, n=n: getattr(torch, n)(x, -1), lambda p, x, n=n: x.op(n, axis=-1)) for n in (
        'softmax', 'log_softmax', 'cumsum')},
    'var': (3, lambda x: x.var(-1), lambda p, x: x.op('variance', axes=[-1])),
    'std': (3, lambda x: x.std(-1), lambda p, x: x.op('stddev', axes=[-1])),
    'amax': (3, lambda x: x.amax(-1), lambda p, x: x.op('max', axes=[-1])),
    'norm': (3, lambda x: torch.linalg.vector_norm(x, 2, -1), lambda p, x: x.op('norm', p=2.0, axes=[-1])),
    'layer_norm': (3, lambda x: F.layer_norm(x, (3,)), lambda p, x: p.op('layer_norm', x, None, None, eps=1e-5)),
    'rms_norm': (3, lambda x: F.rms_norm(x, (3,), eps=1e-6), lambda p, x: p.op('rms_norm', x, None, eps=1e-6)),
}
