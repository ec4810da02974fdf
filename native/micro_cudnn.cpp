// Single operators on cuDNN, for `aiperf micro --stack native` on NVIDIA GPUs; the C interface of
// micro.cpp.
//
// Convolutions, products and the triad are graphs of cuDNN's frontend, pooling calls cuDNN itself,
// whose graphs have no gradient of a pooling. Operands come as float32 with the channels last; they
// are converted on the host and lie on the device before anything is timed.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "cudnn_frontend.h"
#include "micro.h"

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

namespace {

void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

void check(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) throw std::runtime_error(cudnnGetErrorString(status));
}

void check(fe::error_t status) {
    if (status.is_bad()) throw std::runtime_error(status.get_message());
}

// Memory of the device.
class Block {
public:
    explicit Block(size_t bytes) { check(cudaMalloc(&data_, bytes ? bytes : 1)); }
    ~Block() { cudaFree(data_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    void* get() const { return data_; }

private:
    void* data_ = nullptr;
};

using Memory = std::shared_ptr<Block>;

// An array of the caller: its number of elements, and how many columns its rows have if the device
// holds it transposed. cuDNN wants the filters first and their channels last, the caller's filters
// are last.
struct Array {
    int64_t elements = 0;
    int64_t columns = 0;
};

struct Operands {
    std::vector<Memory> read;
    Memory written;
    Memory pooled;  // of a gradient of pooling
};

struct Kernel {
    cudaStream_t stream = nullptr;
    cudnnHandle_t handle = nullptr;
    Shape shape{};
    std::unique_ptr<fe::graph::Graph> graph;
    std::vector<Tensor> inputs;
    Tensor output;
    Tensor factor;
    Memory workspace;
    cudnnTensorDescriptor_t images = nullptr, outputs = nullptr;
    cudnnPoolingDescriptor_t pooling = nullptr;
    std::vector<Array> arrays;
    Array result;
    std::vector<Operands> copies;

    Kernel() {
        check(cudaStreamCreate(&stream));
        check(cudnnCreate(&handle));
        check(cudnnSetStream(handle, stream));
    }
    ~Kernel() {
        if (stream) cudaStreamSynchronize(stream);
        if (pooling) cudnnDestroyPoolingDescriptor(pooling);
        if (images) cudnnDestroyTensorDescriptor(images);
        if (outputs) cudnnDestroyTensorDescriptor(outputs);
        if (handle) cudnnDestroy(handle);
        if (stream) cudaStreamDestroy(stream);
    }
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;
};

size_t item_size(const Shape& shape) { return shape.precision == 0 ? 4 : 2; }

fe::DataType_t type_of(const Shape& shape) {
    return shape.precision == 0 ? fe::DataType_t::FLOAT
         : shape.precision == 1 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

int64_t product(const Dims& dims) {
    int64_t found = 1;
    for (const auto size : dims) found *= size;
    return found;
}

// Strides of (N, C, spatial axes) with the channels last in memory.
Dims channels_last(const Dims& dims) {
    Dims strides(dims.size());
    int64_t step = dims[1];
    for (size_t axis = dims.size() - 1; axis >= 2; --axis) {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides[1] = 1;
    strides[0] = step;
    return strides;
}

Tensor tensor(Kernel& kernel, const Dims& dims, const Dims& strides) {
    return kernel.graph->tensor(
        fe::graph::Tensor_attributes().set_dim(dims).set_stride(strides).set_data_type(type_of(kernel.shape)));
}

void read(Kernel& kernel, const Tensor& operand, const Dims& dims, int64_t columns = 0) {
    kernel.inputs.push_back(operand);
    kernel.arrays.push_back({product(dims), columns});
}

void write(Kernel& kernel, const Tensor& result, const Dims& dims, const Dims& strides, int64_t columns = 0) {
    result->set_output(true).set_dim(dims).set_stride(strides).set_data_type(type_of(kernel.shape));
    kernel.output = result;
    kernel.result = {product(dims), columns};
}

void begin_graph(Kernel& kernel) {
    kernel.graph = std::make_unique<fe::graph::Graph>();
    kernel.graph->set_io_data_type(type_of(kernel.shape))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
}

// The plan that cuDNN's heuristics prefer. float32 means float32: no TensorFloat-32.
void finish_graph(Kernel& kernel) {
    auto& graph = *kernel.graph;
    check(graph.validate());
    check(graph.build_operation_graph(kernel.handle));
    check(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
    if (kernel.shape.precision == 0)
        graph.deselect_numeric_notes({fe::NumericalNote_t::TENSOR_CORE, fe::NumericalNote_t::DOWN_CONVERT_INPUTS});
    check(graph.check_support());
    check(graph.build_plans());
    int64_t bytes = 0;
    check(graph.get_workspace_size(bytes));
    kernel.workspace = std::make_shared<Block>(static_cast<size_t>(bytes));
}

template <typename Attributes>
Attributes convolution_of(const Shape& shape) {
    return Attributes()
        .set_pre_padding(of(shape.before, shape.axes))
        .set_post_padding(of(shape.behind, shape.axes))
        .set_stride(of(shape.stride, shape.axes))
        .set_dilation(Dims(static_cast<size_t>(shape.axes), 1));
}

void make_convolution(Kernel& kernel) {
    const Shape& shape = kernel.shape;
    const Dims x = with(shape.batch, shape.channels, shape.sizes, shape.axes);
    const Dims y = with(shape.batch, shape.filters, shape.outputs, shape.axes);
    const Dims w = with(shape.filters, shape.channels, shape.kernel, shape.axes);
    begin_graph(kernel);
    auto& graph = *kernel.graph;
    if (shape.direction == FORWARD) {
        const auto images = tensor(kernel, x, channels_last(x)), filters = tensor(kernel, w, channels_last(w));
        read(kernel, images, x);
        read(kernel, filters, w, shape.filters);
        const auto result = graph.conv_fprop(images, filters, convolution_of<fe::graph::Conv_fprop_attributes>(shape));
        write(kernel, result, y, channels_last(y));
    } else if (shape.direction == INPUT) {
        const auto gradients = tensor(kernel, y, channels_last(y)), filters = tensor(kernel, w, channels_last(w));
        read(kernel, gradients, y);
        read(kernel, filters, w, shape.filters);
        const auto result =
            graph.conv_dgrad(gradients, filters, convolution_of<fe::graph::Conv_dgrad_attributes>(shape));
        write(kernel, result, x, channels_last(x));
    } else {
        const auto images = tensor(kernel, x, channels_last(x)), gradients = tensor(kernel, y, channels_last(y));
        read(kernel, images, x);
        read(kernel, gradients, y);
        const auto result =
            graph.conv_wgrad(gradients, images, convolution_of<fe::graph::Conv_wgrad_attributes>(shape));
        write(kernel, result, w, channels_last(w), shape.filters);
    }
    finish_graph(kernel);
}

void make_product(Kernel& kernel) {
    const Shape& shape = kernel.shape;
    const auto [m, k, n] = Product(shape);
    // A transposed operand has its strides exchanged.
    begin_graph(kernel);
    const auto left = tensor(kernel, {1, m, k}, shape.direction == WEIGHTS ? Dims{m * k, 1, m} : Dims{m * k, k, 1});
    const auto right = tensor(kernel, {1, k, n}, shape.direction == INPUT ? Dims{k * n, 1, k} : Dims{k * n, n, 1});
    read(kernel, left, {m, k});
    read(kernel, right, {k, n});
    write(kernel, kernel.graph->matmul(left, right, fe::graph::Matmul_attributes()), {1, m, n}, {m * n, n, 1});
    finish_graph(kernel);
}

// a = b + 3 c.
void make_triad(Kernel& kernel) {
    const int64_t n = kernel.shape.channels;
    begin_graph(kernel);
    auto& graph = *kernel.graph;
    const Dims dims{1, 1, n}, strides{n, n, 1};
    const auto first = tensor(kernel, dims, strides), second = tensor(kernel, dims, strides);
    kernel.factor = graph.tensor(3.0f);
    read(kernel, first, dims);
    read(kernel, second, dims);
    const auto scaled = graph.pointwise(second, kernel.factor, fe::graph::Pointwise_attributes()
        .set_mode(fe::PointwiseMode_t::MUL));
    scaled->set_data_type(fe::DataType_t::FLOAT);
    const auto result = graph.pointwise(first, scaled, fe::graph::Pointwise_attributes()
        .set_mode(fe::PointwiseMode_t::ADD));
    write(kernel, result, dims, strides);
    finish_graph(kernel);
}

cudnnTensorDescriptor_t described(const Shape& shape, const Dims& dims) {
    cudnnTensorDescriptor_t found = nullptr;
    check(cudnnCreateTensorDescriptor(&found));
    const Dims strides = channels_last(dims);
    const std::vector<int> sizes(dims.begin(), dims.end()), steps(strides.begin(), strides.end());
    const auto type = shape.precision == 0 ? CUDNN_DATA_FLOAT
        : shape.precision == 1 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    check(cudnnSetTensorNdDescriptor(found, type, static_cast<int>(sizes.size()), sizes.data(), steps.data()));
    return found;
}

void make_pooling(Kernel& kernel) {
    const Shape& shape = kernel.shape;
    const Dims x = with(shape.batch, shape.channels, shape.sizes, shape.axes);
    const Dims y = with(shape.batch, shape.channels, shape.outputs, shape.axes);
    kernel.images = described(shape, x);
    kernel.outputs = described(shape, y);
    const std::vector<int> window(shape.kernel, shape.kernel + shape.axes), none(static_cast<size_t>(shape.axes), 0),
        stride(shape.stride, shape.stride + shape.axes);
    check(cudnnCreatePoolingDescriptor(&kernel.pooling));
    const auto mode = shape.operation == MAX_POOLING ? CUDNN_POOLING_MAX : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    check(cudnnSetPoolingNdDescriptor(kernel.pooling, mode, CUDNN_PROPAGATE_NAN, static_cast<int>(shape.axes),
        window.data(), none.data(), stride.data()));
    if (shape.direction == FORWARD) {
        kernel.arrays = {{product(x), 0}};
        kernel.result = {product(y), 0};
        return;
    }
    if (shape.operation == MAX_POOLING) kernel.arrays.push_back({product(x), 0});
    kernel.arrays.push_back({product(y), 0});
    kernel.result = {product(x), 0};
}

void convert(const Shape& shape, const float* data, int64_t count, std::vector<char>& bytes) {
    bytes.resize(static_cast<size_t>(count) * item_size(shape));
    auto* halves = reinterpret_cast<__half*>(bytes.data());
    auto* brains = reinterpret_cast<__nv_bfloat16*>(bytes.data());
    auto* floats = reinterpret_cast<float*>(bytes.data());
    for (int64_t index = 0; index < count; ++index) {
        if (shape.precision == 0) floats[index] = data[index];
        else if (shape.precision == 1) brains[index] = __float2bfloat16(data[index]);
        else halves[index] = __float2half(data[index]);
    }
}

Memory uploaded(const Kernel& kernel, const Array& array, const float* data) {
    std::vector<float> turned;
    if (array.columns) {
        const int64_t rows = array.elements / array.columns;
        turned.resize(static_cast<size_t>(array.elements));
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t column = 0; column < array.columns; ++column)
                turned[static_cast<size_t>(column * rows + row)] = data[row * array.columns + column];
        data = turned.data();
    }
    std::vector<char> bytes;
    convert(kernel.shape, data, array.elements, bytes);
    auto block = std::make_shared<Block>(bytes.size());
    check(cudaMemcpy(block->get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    return block;
}

void run_pooling(const Kernel& kernel, const Operands& operands) {
    const float one = 1.0f, zero = 0.0f;
    if (kernel.shape.direction == FORWARD) {
        check(cudnnPoolingForward(kernel.handle, kernel.pooling, &one, kernel.images, operands.read[0]->get(), &zero,
            kernel.outputs, operands.written->get()));
        return;
    }
    // The gradient of an average does not look at its input: any memory of that size will do.
    const bool largest = kernel.shape.operation == MAX_POOLING;
    const void* images = largest ? operands.read[0]->get() : operands.written->get();
    check(cudnnPoolingBackward(kernel.handle, kernel.pooling, &one, kernel.outputs, operands.pooled->get(),
        kernel.outputs, operands.read.back()->get(), kernel.images, images, &zero, kernel.images,
        operands.written->get()));
}

void run(Kernel& kernel, const Operands& operands) {
    if (kernel.pooling) return run_pooling(kernel, operands);
    float factor = 3.0f;
    std::unordered_map<Tensor, void*> pointers{{kernel.output, operands.written->get()}};
    for (size_t index = 0; index < kernel.inputs.size(); ++index)
        pointers[kernel.inputs[index]] = operands.read[index]->get();
    if (kernel.factor) pointers[kernel.factor] = &factor;
    check(kernel.graph->execute(kernel.handle, pointers, kernel.workspace->get()));
}

}  // namespace

extern "C" {

const char* micro_version() {
    static std::string text;
    const auto number = cudnnGetVersion();
    text = "cuDNN " + std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
           std::to_string(number % 100);
    return text.c_str();
}

// Number of devices that CUDA sees here: none without a driver.
int64_t micro_devices() {
    int found = 0;
    return cudaGetDeviceCount(&found) == cudaSuccess ? found : 0;
}

Kernel* micro_create(const Shape* shape, char* error, int64_t size) {
    std::unique_ptr<Kernel> kernel;
    const int failed = guarded(error, size, [&] {
        kernel = std::make_unique<Kernel>();
        kernel->shape = *shape;
        if (shape->operation == CONVOLUTION) make_convolution(*kernel);
        else if (shape->operation == PRODUCT) make_product(*kernel);
        else if (shape->operation == TRIAD) make_triad(*kernel);
        else make_pooling(*kernel);
    });
    return failed ? nullptr : kernel.release();
}

int micro_add(Kernel* kernel, const float* first, const float* second, char* error, int64_t size) {
    return guarded(error, size, [&] {
        Operands operands;
        const float* data[] = {first, second};
        for (size_t index = 0; index < kernel->arrays.size(); ++index)
            operands.read.push_back(uploaded(*kernel, kernel->arrays[index], data[index]));
        const size_t item = item_size(kernel->shape);
        operands.written = std::make_shared<Block>(static_cast<size_t>(kernel->result.elements) * item);
        if (kernel->pooling && kernel->shape.direction != FORWARD) {
            operands.pooled = std::make_shared<Block>(static_cast<size_t>(kernel->arrays.back().elements) * item);
            const float one = 1.0f, zero = 0.0f;
            if (kernel->shape.operation == MAX_POOLING)
                check(cudnnPoolingForward(kernel->handle, kernel->pooling, &one, kernel->images,
                    operands.read[0]->get(), &zero, kernel->outputs, operands.pooled->get()));
            check(cudaStreamSynchronize(kernel->stream));
        }
        kernel->copies.push_back(operands);
    });
}

int micro_call(Kernel* kernel, int64_t copy, char* error, int64_t size) {
    return guarded(error, size, [&] { run(*kernel, kernel->copies[static_cast<size_t>(copy)]); });
}

void micro_wait(Kernel* kernel) { cudaStreamSynchronize(kernel->stream); }

int micro_result(Kernel* kernel, int64_t copy, float* data, char* error, int64_t size) {
    return guarded(error, size, [&] {
        const Shape& shape = kernel->shape;
        const int64_t count = kernel->result.elements, columns = kernel->result.columns;
        std::vector<char> bytes(static_cast<size_t>(count) * item_size(shape));
        check(cudaStreamSynchronize(kernel->stream));
        check(cudaMemcpy(bytes.data(), kernel->copies[static_cast<size_t>(copy)].written->get(), bytes.size(),
            cudaMemcpyDeviceToHost));
        const int64_t rows = columns ? count / columns : 1;
        for (int64_t index = 0; index < count; ++index) {
            const float value = shape.precision == 0 ? reinterpret_cast<const float*>(bytes.data())[index]
                : shape.precision == 1 ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(bytes.data())[index])
                : __half2float(reinterpret_cast<const __half*>(bytes.data())[index]);
            data[columns ? index % rows * columns + index / rows : index] = value;
        }
    });
}

void micro_destroy(Kernel* kernel) { delete kernel; }
}
