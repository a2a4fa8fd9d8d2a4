"""Samples that torch_samples.py leaves out or expects to differ, with reasons. Each rule is a regular expression and a
reason. A rule that a complete run does not use is an error, so that the lists stay correct."""
import collections
import re

import torch


class Rules:
    """Rules of one kind, tried in order, with the number of uses of each."""

    def __init__(self, kind, rules):
        self.kind, self.rules, self.needed = kind, rules, collections.Counter()

    def find(self, text):
        """Returns the first rule that matches and counts its use; None without a match."""
        for rule in self.rules:
            if re.search(rule[0], text):
                self.needed[rule] += 1
                return rule
        return None

    def unneeded(self):
        return [f'{self.kind}: {rule[0]}' for rule in self.rules if not self.needed[rule]]

    def counts(self):
        by_reason = collections.Counter()
        for rule, n in self.needed.items():
            by_reason[rule[-1]] += n
        return by_reason


# Dtypes that heed's op refuses (dtype, reason, ops), with an Error that says so. Other dtypes are run and compared.
TAKES_NO = []
for _dtypes, _reason, _ops in [
        ('float32 float64 bfloat16 int32', 'conditions and masks are bool8: say x != 0',
         'all any logical_and logical_not logical_or logical_xor'),
        ('int32', 'integers have no ops of single bits', '__rand__ __ror__ __rxor__ bitwise_and bitwise_not bitwise_or '
         'bitwise_xor'),
        ('bfloat16', 'losses, norms and rows of a table compute in float32: convert with to()',
         'edge.huber_loss edge.l1_loss edge.layer_norm edge.mse_loss edge.rms_norm index_add '
         'nn.functional.binary_cross_entropy_with_logits nn.functional.cross_entropy nn.functional.dropout '
         'nn.functional.embedding nn.functional.huber_loss nn.functional.kl_div nn.functional.l1_loss '
         'nn.functional.layer_norm nn.functional.mse_loss nn.functional.rms_norm nn.functional.smooth_l1_loss '
         'nn.functional.scaled_dot_product_attention scatter_add'),
        ('int32 bool8', 'functions of real numbers: nothing is promoted',
         '__rdiv__ cos div.no_rounding_mode erf exp exp2 expm1 log log10 log1p log2 logsumexp prod reciprocal rsqrt sigmoid '
         'sin sqrt tan tanh true_divide isfinite isnan isreal'),
        ('int32', 'functions of real numbers: nothing is promoted',
         '__rpow__ pow nn.functional.relu nn.functional.linear nn.functional.pairwise_distance nn.functional.softsign '
         'nn.functional.tanhshrink'),
        ('int32 bool8', 'indices are found, and sums scattered, of floating numbers',
         'argsort index_add msort scatter_add sort'),
        ('int32', 'indices are found, and sums scattered, of floating numbers', 'kthvalue topk'),
        ('bool8', 'truth values have no arithmetic and no order: convert with to()',
         '__radd__ __rmul__ add addr amax amin aminmax clamp_max clamp_min deg2rad isinf max.binary '
         'max.reduction_no_dim max.reduction_with_dim maximum min.binary min.reduction_no_dim min.reduction_with_dim '
         'minimum mul outer rad2deg sgn sign square'),
]:
    TAKES_NO += [(f'^{re.escape(op)} {dtype} ', f'{dtype}: {_reason}') for dtype in _dtypes.split() for op in _ops.split()]
TAKES_NO = Rules('TAKES_NO', TAKES_NO)
DTYPE_MESSAGE = r'must be (floating|bool8|float32|float64)|both (must be )?float32|\[V, D\], float32|all must be float32'

# Expected Errors of heed, by op, dtype and message.
REFUSED = Rules('REFUSED', [
    (r'^(addcmul|addcdiv|eq|ne|lt|le|gt|ge|clamp|where) .*their dtypes must be the same', 'nothing is promoted: dtypes must match'),
    (r'^(deg2rad|rad2deg|addmv|addbmm|baddbmm|nn\.functional\.pairwise_distance) int32: .*int32 must hold it exactly',
     'a number that int32 does not hold'),
    (r'^(full_like|masked_fill) bool8: .*bool8 must hold it exactly', 'a number that bool8 does not hold'),
    (r'norm: p is (-|0).*must be greater than 0', 'norms are of p > 0'),
    (r'^nn\.functional\.(layer_norm|rms_norm) .*eps is .*must not be negative', 'an eps below 0'),
    (r'^(kthvalue|gather) .*axis is (0|-1) but x is \[\]', 'an axis that a scalar lacks'),
    (r"^masked_fill .*the mask must broadcast to x's shape", 'masked_fill keeps the shape of x'),
    (r'^nn\.KLDivLoss .*batch_mean needs a first axis', 'the mean over a batch, of a scalar'),
])

# Samples that the table does not map to heed's ops, by the text of Skip.
LEFT_OUT = Rules('LEFT_OUT', [(f'^{re.escape(reason)}( |$)', reason) for reason in (
    # Options and arguments.
    'targets that are probabilities', 'classes on the second axis of more', 'norms of matrices', 'a norm over no axes',
    'added keys', 'an index that is no number and no slice', 'an index that is a list', 'an index that broadcasts', 'threshold',
    'places in a tensor', 'repeats in a tensor', 'index_add of scalars', 'index_select of scalars', 'a value of many',
    'causal, aligned at the beginnings: heed aligns the ends', 'batches that broadcast', 'a logical op of a number',
    # Dtypes and sizes.
    'more than eight axes', 'what is beyond int32', 'the dtype torch.uint8', 'the dtype torch.float16',
    'to the dtype torch.int64', 'complex, sparse or elsewhere', 'a number that is complex', 'an argument that is',
    'a word for which heed has an enum', 'arguments of types that C++ does not take', 'no tensor', 'option out',
    # Results that cannot be compared.
    'random numbers', 'PyTorch refuses its gradient', 'PyTorch gives no tensor',
    'an error input of an op that the table takes apart')])

# Error inputs of PyTorch that heed accepts, and the reasons.
NO_ERROR = Rules('NO_ERROR', [
    (r'^(clamp_max|clamp_min|eq|ge|gt|le|lt|max.binary|maximum|min.binary|minimum|ne|__radd__|__rmul__|rsub) error',
     'one of two is a number'),
    (r'^flipud error', 'a scalar has the axes 0 and -1'),
])


# Expected differences: samples, elements of a Case, and reasons.
KNOWN = Rules('KNOWN', [
    (r'^(edge|nn\.functional)\.(elu|celu|selu) .* gradient', lambda c: c.x.isnan() & c.got.isnan(),
     'the slope of elu at NaN is NaN, in PyTorch that of x > 0'),
    (r'^edge\.l1_loss .* gradient', lambda c: (c.inputs[0] - c.inputs[1]).isnan() & c.got.isnan(),
     'the slope of |x| at NaN is NaN, in PyTorch 0'),
    (r'^edge\.gelu_tanh .* gradient', lambda c: c.expected.isnan() &
     (c.got == torch.where(c.x > 0, c.dys[0], 0 * c.dys[0])),
     'the slope of gelu is 0 or 1 where x^3 overflows, in PyTorch NaN'),
    (r'^(edge|nn\.functional)\.softsign .* gradient', lambda c: c.x.isinf() & c.expected.isnan() & (c.got == 0),
     'the slope of softsign at infinity is 0, in PyTorch NaN'),
    (r'^edge\.amax .* gradient', lambda c: c.x.isnan().any(-1, keepdim=True) & c.expected.isnan() &
     (c.got == torch.where(c.x.isnan(), c.dys[0].unsqueeze(-1), 0)),
     'a greatest that is NaN gives its gradient to the NaN, in PyTorch (but for max of an axis) NaN to all'),
    (r'^edge\.rms_norm .* result', lambda c: c.x.isinf().any(-1, keepdim=True) & c.got.isnan(),
     'a row that holds an infinity is NaN throughout, in PyTorch 0 where it is finite'),
    (r'^edge\.var .* gradient', lambda c: c.x.isinf().any(-1, keepdim=True) & c.got.isnan(),
     'the gradient of a variance that is NaN is NaN, in PyTorch infinite where x is finite'),
])


# Sums whose terms cancel: op and kind, and a function of the sample's arguments in float64 that gives the sum of the
# terms' magnitudes (or the largest). Results may differ by some rounding errors of that sum.
CANCELLING = Rules('CANCELLING', [
    (r'^edge\.sum .* result', lambda x, dys: x.abs().sum(-1)),
    (r'^edge\.mean .* result', lambda x, dys: x.abs().mean(-1)),
    # 2 dy (x - mean) / (n - 1), where a sum of differences corrects the rounding error of the mean
    (r'^edge\.(var) .* gradient', lambda x, dys: (2 * dys[0].abs() * x.abs().mean(-1) / 2).unsqueeze(-1)),
    # dy / |x| minus x times the gradient of 1 / |x|: 0 in total if the axis has one element
    (r'^nn\.functional\.normalize .* gradient', lambda x, dys, p=2.0, dim=1, eps=1e-12:
     dys[0].abs() / torch.linalg.vector_norm(x, p, dim, keepdim=True).clamp(min=eps)),
])

# Cases where PyTorch's own result is not a valid reference: the function to compare with, and the reason.
F = torch.nn.functional


def stable_top(x, k, dim=-1, largest=True, sorted=True):
    values, places = torch.sort(x, dim=dim, descending=largest, stable=True)
    return (values, places) if x.ndim == 0 else (values.narrow(dim, 0, k), places.narrow(dim, 0, k))


def stable_kth(x, k, dim=-1, keepdim=False):
    values, places = torch.sort(x, dim=dim, stable=True)
    if x.ndim == 0:
        return values, places
    values, places = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


ANY_OF_EQUAL = 'of equal values PyTorch gives any first'
INSTEAD = {
    'topk': (stable_top, ANY_OF_EQUAL),
    'kthvalue': (stable_kth, ANY_OF_EQUAL),
    'sort': (lambda x, dim=-1, descending=False, stable=True: torch.sort(x, dim=dim, descending=descending, stable=True),
             ANY_OF_EQUAL),
    'msort': (lambda x: torch.sort(x, dim=0, stable=True)[0], ANY_OF_EQUAL),
    'argsort': (lambda x, dim=-1, descending=False, stable=True:
                torch.sort(x, dim=dim, descending=descending, stable=True)[1], ANY_OF_EQUAL),
    'nn.functional.celu': (lambda x, alpha=1.0, inplace=False: F.elu(x / alpha) * alpha,
                           'PyTorch rounds 1 / alpha to float32 in the gradient of a float64 x'),
}

# Results whose zeros may have any sign: op and dtype.
UNSIGNED = Rules('UNSIGNED', [
    (r'^(edge\.|nn\.functional\.)relu ', 'relu of -0 is 0'),
    (r'^(edge\.gelu|nn\.GELU) ', 'gelu of -0 is 0'),
    (r'^(edge\.|nn\.functional\.)logsigmoid ', 'said as a softplus that is turned'),
    (r'^(maximum|minimum|max\.binary|min\.binary|clamp_min|clamp_max) ', 'of 0 and -0 either is the greater'),
    (r'^nn\.functional\.dropout ', 'what is dropped is 0'),
    (r'^(edge\.mean|edge\.rms_norm|nn\.CrossEntropyLoss) ', 'sums'),
])

# PyTorch's ops, modules and optimizers that the table does not map, by name. A name without a rule is an error.
NOT_MAPPED = []
for _reason, _names in [
        ('internal, sparse or of one kind of device', r'_[^_].* bmm\.triton_optimized jiterator_.* native_.* max_pool2d_with.* '
         r'sparse\..* to_sparse torch\..* hash_tensor broadcast_shapes optim\.SparseAdam'),
        ('complex numbers and Fourier transforms', r'angle cdouble cfloat chalf complex fft\..* i?stft imag polar '
         r'view_as_complex view_as_real nn\.functional\.silu\.complex signal\.windows\..*'),
        ('factors, solutions and functions of matrices', r'cholesky.* geqrf linalg\..* logdet lu lu_solve lu_unpack '
         r'matrix_exp norm\.nuc ormqr pca_lowrank pinverse qr svd svd_lowrank triangular_solve'),
        ('special functions', r'special\..* digamma erfc erfinv i0 igammac? lgamma mvlgamma.* polygamma.* sinc logit'),
        ('inverse and hyperbolic functions of angles', 'acosh? asinh? atanh? atan2 cosh sinh hypot'),
        ('rounding, remainders and the parts of a number', r'__rmod__ ceil copysign div\.(floor|trunc)_rounding floor '
         r'floor_divide fmod frac frexp heaviside ldexp nan_to_num nextafter remainder round.* signbit trunc'),
        ('other integers and bits', 'bitwise_(left|right)_shift byte char gcd half lcm long short'),
        ('convolution, pooling and images', r'nn\.functional\.(adaptive_.*|avg_pool.*|channel_shuffle|conv.*|'
         r'fractional_max.*|grid_sample|interpolate.*|max_(un)?pool.*|pad\..*|pixel_.*|unfold|upsample_.*) grid_sampler_.* '
         r'constant_pad_nd nn\.(Adaptive.*|(Avg|Max|LP|FractionalMax)Pool.*|(Lazy)?Conv.*|.*Pad[123]d)'),
        ('norms over a batch, groups or channels', r'nn\.functional\.(batch|group|instance)_norm.* '
         r'nn\.functional\.local_response_norm nn\.(BatchNorm|GroupNorm|InstanceNorm|LocalResponseNorm).* renorm'),
        ('mapped as a function', r'nn\.LinearCrossEntropyLoss'),
        ('losses that heed does not have', r'nn\.functional\.(.*_loss|bilinear|binary_cross_entropy|cosine_similarity|pdist|'
         r'triplet_.*) nn\.(Bilinear|.*Loss) cdist'),
        ('activations that heed does not have', r'nn\.functional\.(hard.*|prelu|relu6|rrelu|softshrink) '
         r'nn\.(Hard.*|ReLU6|PReLU|Softmax2d|Softshrink)'),
        ('random numbers: other generators', r'bernoulli cauchy exponential geometric log_normal multinomial normal.* '
         r'rand.* uniform nn\.functional\.(alpha_dropout|dropout[23]d|feature_alpha_dropout.*)'),
        ('tensors that are made without another', 'arange empty.* eye full linspace.* logspace.* new_.* ones scalar_tensor '
         'tril_indices triu_indices zeros'),
        ('writing into a tensor, or into a part of it', r'as_strided.* diagonal_scatter fill index_(copy|fill|put) '
         r'index_reduce.* masked_scatter put resize_.* scatter scatter_reduce.* select_scatter slice_scatter zero_'),
        ('results whose shape depends on the values', 'argwhere bincount combinations histc histogram(dd)? masked_select '
         'nonzero.* unique.*'),
        ('reductions under a mask: said as where() before a reduction', r'masked\..*'),
        ('order statistics, and reductions that skip NaN', 'median mode nan(mean|median|quantile|sum) quantile fmax fmin '
         'bucketize searchsorted isin'),
        ('other scans, differences and integrals', r'cummax cummin cumprod cumulative_trapezoid diff gradient logcumsumexp '
         r'trapezoid trapz'),
        ('other products and views', 'block_diag cartesian_prod corrcoef cov cross diag.* einsum kron rot90 sum_to_size take '
         'tensordot trace unfold.* unravel_index'),
        ('other functions', r'allclose equal isclose item logaddexp2? xlogy nn\.functional\.embedding_bag'),
        ('compared by other programs of tests/reference', r'nn\.(RNN|GRU|LSTM)(Cell)? nn\.Transformer optim\.Muon '
         r'nn\.functional\.multi_head_attention_forward'),
        ('optimizers that heed does not have', r'optim\.(Adadelta|Adamax|ASGD|LBFGS|NAdam|RAdam|Rprop)'),
]:
    NOT_MAPPED += [(f'^(?:{name})$', _reason) for name in _names.split()]
NOT_MAPPED = Rules('NOT_MAPPED', NOT_MAPPED)

ALL = [NOT_MAPPED, TAKES_NO, REFUSED, LEFT_OUT, NO_ERROR, KNOWN, CANCELLING, UNSIGNED]
