// The windows of a convolution or a pooling along one axis.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Window w begins at position w * stride - before, and its taps are `dilation` apart. Positions outside [0, size) are
// padding.
struct Windows {
  Index size = 1, kernel = 1, stride = 1, dilation = 1;
  Index before = 0;  // positions of padding before position 0; may be negative
  Index count = 1;   // number of windows

  bool has(Index position) const { return position >= 0 && position < size; }
  // The position that a tap of a window reads.
  Index position(Index window, Index tap) const { return window * stride + tap * dilation - before; }
  // The window whose tap reads the position; -1 if there is none.
  Index window(Index position, Index tap) const {
    const Index first = position + before - tap * dilation;
    if (first < 0) return -1;
    if (stride == 1) return first < count ? first : -1;  // without divisions
    if (first % stride != 0) return -1;
    return first / stride < count ? first / stride : -1;
  }
  // Whether window w is position w alone.
  bool is_identity() const { return kernel == 1 && stride == 1 && before == 0 && count == size; }
};

// Sets windows.count from the other members and the padding after the last position. Throws Error if one of the numbers
// makes no sense, or if a window is longer than the axis with its padding. `axis` names the axis in the message.
void count_windows(const char* op, In x, const char* axis, Windows& windows, Index after, bool ceil_mode = false);

// Whether the channels of x [N, C, ...] are next to each other in memory, and the positions are not: results then have
// this order of memory, too.
inline bool has_channels_last(const Tensor& x) { return x.strides()[1] == 1 && !x.is_contiguous(); }

// Views of x [N, C, H, W] or [N, C, L] as [N, H, W, C], where H of a sequence is 1, and the inverse for `rank` axes.
Tensor with_channels_last(const Tensor& x);
Tensor with_channels_first(const Tensor& x, int rank);

}  // namespace heed::detail
