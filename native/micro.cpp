// Single operators on oneDNN, for `aiperf micro --stack native`; a C interface for ctypes.
//
// Operands come as float32 with the channels last and are laid out as the primitive prefers them
// before anything is timed. micro_call only starts the primitive; micro_wait waits for the device.

#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "micro.h"
#include "oneapi/dnnl/dnnl.hpp"

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

namespace {

struct Kernel {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    dnnl::primitive primitive;
    // Descriptions of what the primitive reads and writes, and of the caller's arrays.
    std::vector<int> names;
    std::vector<memory::desc> inside, outside;
    memory::desc result_inside, result_outside;
    int result_name = DNNL_ARG_DST;
    std::vector<Arguments> copies;
    // Of a gradient of max-pooling: the forward pass that tells where the largest elements were.
    dnnl::primitive forward;
    memory::desc workspace;
    bool has_workspace = false;
};

memory::data_type type_of(const Shape& shape) {
    return shape.precision == 0 ? memory::data_type::f32
         : shape.precision == 1 ? memory::data_type::bf16 : memory::data_type::f16;
}

memory::desc any(const Dims& dims, memory::data_type type) { return {dims, type, memory::format_tag::any}; }

memory::desc plain(const Dims& dims, memory::format_tag tag) { return {dims, memory::data_type::f32, tag}; }

void put(Kernel& kernel, int name, const memory::desc& inside, const memory::desc& outside) {
    kernel.names.push_back(name);
    kernel.inside.push_back(inside);
    kernel.outside.push_back(outside);
}

void make_convolution(Kernel& kernel, const Shape& shape) {
    using namespace dnnl;
    const auto type = type_of(shape);
    const bool flat = shape.axes == 2;
    const auto images = flat ? memory::format_tag::nhwc : memory::format_tag::ndhwc;
    const auto filters = flat ? memory::format_tag::hwio : memory::format_tag::dhwio;
    const Dims x = with(shape.batch, shape.channels, shape.sizes, shape.axes);
    const Dims y = with(shape.batch, shape.filters, shape.outputs, shape.axes);
    const Dims w = with(shape.filters, shape.channels, shape.kernel, shape.axes);
    const Dims stride = of(shape.stride, shape.axes), before = of(shape.before, shape.axes),
               behind = of(shape.behind, shape.axes);
    const convolution_forward::primitive_desc forward(
        kernel.engine, shape.direction == FORWARD ? prop_kind::forward_inference : prop_kind::forward_training,
        algorithm::convolution_auto, any(x, type), any(w, type), any(y, type), stride, before, behind);
    if (shape.direction == FORWARD) {
        kernel.primitive = convolution_forward(forward);
        put(kernel, DNNL_ARG_SRC, forward.src_desc(), plain(x, images));
        put(kernel, DNNL_ARG_WEIGHTS, forward.weights_desc(), plain(w, filters));
        kernel.result_inside = forward.dst_desc();
        kernel.result_outside = plain(y, images);
    } else if (shape.direction == INPUT) {
        const convolution_backward_data::primitive_desc backward(
            kernel.engine, algorithm::convolution_auto, any(x, type), any(w, type), any(y, type), stride, before,
            behind, forward);
        kernel.primitive = convolution_backward_data(backward);
        put(kernel, DNNL_ARG_DIFF_DST, backward.diff_dst_desc(), plain(y, images));
        put(kernel, DNNL_ARG_WEIGHTS, backward.weights_desc(), plain(w, filters));
        kernel.result_name = DNNL_ARG_DIFF_SRC;
        kernel.result_inside = backward.diff_src_desc();
        kernel.result_outside = plain(x, images);
    } else {
        const convolution_backward_weights::primitive_desc backward(
            kernel.engine, algorithm::convolution_auto, any(x, type), any(w, type), any(y, type), stride, before,
            behind, forward);
        kernel.primitive = convolution_backward_weights(backward);
        put(kernel, DNNL_ARG_SRC, backward.src_desc(), plain(x, images));
        put(kernel, DNNL_ARG_DIFF_DST, backward.diff_dst_desc(), plain(y, images));
        kernel.result_name = DNNL_ARG_DIFF_WEIGHTS;
        kernel.result_inside = backward.diff_weights_desc();
        kernel.result_outside = plain(w, filters);
    }
}

void make_product(Kernel& kernel, const Shape& shape) {
    const auto type = type_of(shape);
    const auto [m, k, n] = Product(shape);
    // A transposed operand has its strides exchanged.
    const Dims left = shape.direction == WEIGHTS ? Dims{1, m} : Dims{k, 1};
    const Dims right = shape.direction == INPUT ? Dims{1, k} : Dims{n, 1};
    const dnnl::matmul::primitive_desc description(
        kernel.engine, any({m, k}, type), any({k, n}, type), any({m, n}, type));
    kernel.primitive = dnnl::matmul(description);
    put(kernel, DNNL_ARG_SRC, description.src_desc(), memory::desc({m, k}, memory::data_type::f32, left));
    put(kernel, DNNL_ARG_WEIGHTS, description.weights_desc(), memory::desc({k, n}, memory::data_type::f32, right));
    kernel.result_inside = description.dst_desc();
    kernel.result_outside = plain({m, n}, memory::format_tag::ab);
}

void make_pooling(Kernel& kernel, const Shape& shape) {
    using namespace dnnl;
    const auto type = type_of(shape);
    const auto tag = shape.axes == 2 ? memory::format_tag::nhwc : memory::format_tag::ndhwc;
    const bool largest = shape.operation == MAX_POOLING;
    const auto how = largest ? algorithm::pooling_max : algorithm::pooling_avg_exclude_padding;
    const Dims x = with(shape.batch, shape.channels, shape.sizes, shape.axes);
    const Dims y = with(shape.batch, shape.channels, shape.outputs, shape.axes);
    const Dims stride = of(shape.stride, shape.axes), window = of(shape.kernel, shape.axes),
               none(static_cast<size_t>(shape.axes), 0);
    const memory::desc images(x, type, tag), outputs(y, type, tag);
    const pooling_forward::primitive_desc forward(
        kernel.engine, shape.direction == FORWARD ? prop_kind::forward_inference : prop_kind::forward_training, how,
        images, outputs, stride, window, none, none, none);
    if (shape.direction == FORWARD) {
        kernel.primitive = pooling_forward(forward);
        put(kernel, DNNL_ARG_SRC, images, plain(x, tag));
        kernel.result_inside = outputs;
        kernel.result_outside = plain(y, tag);
        return;
    }
    const pooling_backward::primitive_desc backward(
        kernel.engine, how, images, outputs, stride, window, none, none, none, forward);
    kernel.primitive = pooling_backward(backward);
    if (largest) {
        put(kernel, DNNL_ARG_SRC, images, plain(x, tag));
        kernel.forward = pooling_forward(forward);
        kernel.workspace = forward.workspace_desc();
        kernel.has_workspace = true;
    }
    put(kernel, DNNL_ARG_DIFF_DST, outputs, plain(y, tag));
    kernel.result_name = DNNL_ARG_DIFF_SRC;
    kernel.result_inside = images;
    kernel.result_outside = plain(x, tag);
}

void make_triad(Kernel& kernel, const Shape& shape) {
    const Dims dims{shape.channels};
    const memory::desc vector(dims, type_of(shape), memory::format_tag::a);
    const dnnl::sum::primitive_desc description(kernel.engine, vector, {1.0f, 3.0f}, {vector, vector});
    kernel.primitive = dnnl::sum(description);
    put(kernel, DNNL_ARG_MULTIPLE_SRC, vector, plain(dims, memory::format_tag::a));
    put(kernel, DNNL_ARG_MULTIPLE_SRC + 1, vector, plain(dims, memory::format_tag::a));
    kernel.result_inside = vector;
    kernel.result_outside = plain(dims, memory::format_tag::a);
}

memory reordered(Kernel& kernel, const memory::desc& outside, const memory::desc& inside, const float* data) {
    memory source(outside, kernel.engine), target(inside, kernel.engine);
    void* mapped = source.map_data();
    std::memcpy(mapped, data, outside.get_size());
    source.unmap_data(mapped);
    dnnl::reorder(source, target).execute(kernel.stream, source, target);
    kernel.stream.wait();
    return target;
}

}  // namespace

extern "C" {

const char* micro_version() {
    static std::string text;
    const auto* version = dnnl_version();
    text = "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch);
    return text.c_str();
}

Kernel* micro_create(const Shape* shape, char* error, int64_t size) {
    std::unique_ptr<Kernel> kernel;
    const int failed = guarded(error, size, [&] {
        kernel = std::make_unique<Kernel>();
        if (shape->operation == CONVOLUTION) make_convolution(*kernel, *shape);
        else if (shape->operation == PRODUCT) make_product(*kernel, *shape);
        else if (shape->operation == TRIAD) make_triad(*kernel, *shape);
        else make_pooling(*kernel, *shape);
    });
    return failed ? nullptr : kernel.release();
}

int micro_add(Kernel* kernel, const float* first, const float* second, char* error, int64_t size) {
    return guarded(error, size, [&] {
        Arguments arguments;
        const float* data[] = {first, second};
        for (size_t index = 0; index < kernel->names.size(); ++index)
            arguments[kernel->names[index]] =
                reordered(*kernel, kernel->outside[index], kernel->inside[index], data[index]);
        arguments[kernel->result_name] = memory(kernel->result_inside, kernel->engine);
        if (kernel->has_workspace) {
            arguments[DNNL_ARG_WORKSPACE] = memory(kernel->workspace, kernel->engine);
            memory pooled(kernel->inside[1], kernel->engine);
            kernel->forward.execute(kernel->stream, {{DNNL_ARG_SRC, arguments[DNNL_ARG_SRC]},
                {DNNL_ARG_DST, pooled}, {DNNL_ARG_WORKSPACE, arguments[DNNL_ARG_WORKSPACE]}});
            kernel->stream.wait();
            arguments.erase(DNNL_ARG_SRC);
        }
        kernel->copies.push_back(arguments);
    });
}

int micro_call(Kernel* kernel, int64_t copy, char* error, int64_t size) {
    return guarded(error, size, [&] {
        kernel->primitive.execute(kernel->stream, kernel->copies[static_cast<size_t>(copy)]);
    });
}

void micro_wait(Kernel* kernel) { kernel->stream.wait(); }

int micro_result(Kernel* kernel, int64_t copy, float* data, char* error, int64_t size) {
    return guarded(error, size, [&] {
        memory target(kernel->result_outside, kernel->engine);
        auto& source = kernel->copies[static_cast<size_t>(copy)].at(kernel->result_name);
        dnnl::reorder(source, target).execute(kernel->stream, source, target);
        kernel->stream.wait();
        void* mapped = target.map_data();
        std::memcpy(data, mapped, kernel->result_outside.get_size());
        target.unmap_data(mapped);
    });
}

void micro_destroy(Kernel* kernel) { delete kernel; }
}
