// What every native stack of `aiperf micro` shares: the shape of a pass as ctypes sends it, and the
// way in which errors go back.

#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

enum Operator { CONVOLUTION, MAX_POOLING, AVERAGE_POOLING, PRODUCT, TRIAD };
enum Direction { FORWARD, INPUT, WEIGHTS };

struct Shape {
    int64_t operation, direction, precision, axes, batch, channels, filters;
    int64_t sizes[3], outputs[3], kernel[3], stride[3], before[3], behind[3];
};

using Dims = std::vector<int64_t>;

Dims with(int64_t first, int64_t second, const int64_t* rest, int64_t axes) {
    Dims dims{first, second};
    dims.insert(dims.end(), rest, rest + axes);
    return dims;
}

Dims of(const int64_t* values, int64_t axes) { return Dims(values, values + axes); }

// Rows, inner size and columns of a product in each of its passes.
struct Product {
    int64_t m, k, n;

    explicit Product(const Shape& shape)
        : m(shape.direction == WEIGHTS ? shape.channels : shape.batch),
          k(shape.direction == FORWARD ? shape.channels : shape.direction == INPUT ? shape.filters : shape.batch),
          n(shape.direction == INPUT ? shape.channels : shape.filters) {}
};

template <typename Action>
int guarded(char* error, int64_t size, Action action) {
    try {
        action();
        return 0;
    } catch (const std::exception& problem) {
        std::snprintf(error, static_cast<size_t>(size), "%s", problem.what());
        return 1;
    }
}

}  // namespace
