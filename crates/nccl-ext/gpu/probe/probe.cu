// What the released libraries do with graphs, and when a peer does not come. Two ranks, each a process:
//
//   probe RANK 2 FOLDER CASE
//
// Everything is raw C API, so that what is seen is the libraries' own behaviour. probe.sh builds and runs it.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_ep.h>

using Clock = std::chrono::steady_clock;
using std::string;
using std::vector;

static int own_rank, ranks;
static string folder;

static double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

#define SAY(...)                      \
    do {                              \
        printf("[%d] ", own_rank);    \
        printf(__VA_ARGS__);          \
        printf("\n");                 \
        fflush(stdout);               \
    } while (0)
#define CUDA(call)                                                           \
    do {                                                                     \
        cudaError_t error = (call);                                          \
        if (error != cudaSuccess) SAY("%s: %s", #call, cudaGetErrorString(error)); \
    } while (0)
#define NCCL(call)                                                                       \
    do {                                                                                 \
        ncclResult_t code = (call);                                                      \
        if (code != ncclSuccess) SAY("%s: code %d %s", #call, (int)code, ncclGetLastError(0)); \
    } while (0)

// Ranks meet through files.
static bool exists(const string& name) {
    struct stat status;
    return stat((folder + "/" + name).c_str(), &status) == 0;
}
static void tell(const string& name) { fclose(fopen((folder + "/" + name).c_str(), "w")); }
static void wait_for(const string& name) {
    while (!exists(name)) usleep(1000);
}
static void meet(const string& name) {
    tell(name + std::to_string(own_rank));
    for (int rank = 0; rank < ranks; rank++) wait_for(name + std::to_string(rank));
}

static ncclComm_t join() {
    ncclUniqueId id;
    string path = folder + "/id", fresh = path + ".new";
    if (own_rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        FILE* file = fopen(fresh.c_str(), "wb");
        fwrite(&id, sizeof id, 1, file);
        fclose(file);
        rename(fresh.c_str(), path.c_str());
    } else {
        wait_for("id");
        FILE* file = fopen(path.c_str(), "rb");
        if (fread(&id, sizeof id, 1, file) != 1) exit(9);
        fclose(file);
    }
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, ranks, id, own_rank));
    return comm;
}

const int TOKENS = 8, TOPK = 2, EXPERTS = 8, HIDDEN = 1024, MOST_TOKENS = 16;

struct Tensor {
    ncclEpTensor_t raw;
    size_t sizes[4];
    void* data;
};

static Tensor* tensor(ncclDataType_t type, vector<size_t> shape, size_t element) {
    Tensor* made = new Tensor;
    memset(made, 0, sizeof *made);
    made->raw = NCCL_EP_TENSOR_INIT;
    size_t bytes = element;
    for (size_t i = 0; i < shape.size(); i++) bytes *= made->sizes[i] = shape[i];
    CUDA(cudaMalloc(&made->data, bytes));
    CUDA(cudaMemset(made->data, 0, bytes));
    made->raw.ndim = shape.size();
    made->raw.datatype = type;
    made->raw.data = made->data;
    made->raw.sizes = made->sizes;
    return made;
}

struct World {
    bool ht;
    ncclComm_t comm;
    ncclEpGroup_t group;
    ncclEpHandle_t handle;
    cudaStream_t stream;
    Tensor *ids, *weights, *tokens, *received, *received_weights, *received_ids, *counters, *combined;

    ncclResult_t update() { return ncclEpUpdateHandle(handle, &ids->raw, nullptr, stream); }

    ncclResult_t dispatch() {
        ncclEpDispatchInputs_t in = NCCL_EP_DISPATCH_INPUTS_INIT;
        ncclEpDispatchOutputs_t out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
        ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
        ncclEpDispatchConfig_t config = NCCL_EP_DISPATCH_CONFIG_INIT;
        in.tokens = &tokens->raw;
        out.tokens = &received->raw;
        if (ht) {
            in.topk_weights = &weights->raw;
            out.topk_weights = &received_weights->raw;
            out.topk_idx = &received_ids->raw;
        } else {
            info.expert_counters = &counters->raw;
        }
        return ncclEpDispatch(handle, &in, &out, ht ? nullptr : &info, &config, stream);
    }

    ncclResult_t combine() {
        ncclEpCombineInputs_t in = NCCL_EP_COMBINE_INPUTS_INIT;
        ncclEpCombineOutputs_t out = NCCL_EP_COMBINE_OUTPUTS_INIT;
        ncclEpCombineConfig_t config = NCCL_EP_COMBINE_CONFIG_INIT;
        in.tokens = &received->raw;
        out.tokens = &combined->raw;
        if (!ht) out.topk_weights = &weights->raw;
        return ncclEpCombine(handle, &in, &out, &config, stream);
    }

    void route(int routing) {
        vector<int64_t> chosen(TOKENS * TOPK);
        for (int token = 0; token < TOKENS; token++) {
            int first = (token * 3 + own_rank + routing) % EXPERTS;
            chosen[token * TOPK] = first;
            chosen[token * TOPK + 1] = (first + 1 + (token + routing) % (EXPERTS - 1)) % EXPERTS;
        }
        CUDA(cudaMemcpy(ids->data, chosen.data(), chosen.size() * 8, cudaMemcpyHostToDevice));
    }

    // Combined tokens, and what differs between routings: counters (LL), received ids (HT).
    vector<uint8_t> result() {
        Tensor* arrived = ht ? received_ids : counters;
        size_t first = TOKENS * HIDDEN * 2, second = 4 * EXPERTS / ranks;
        vector<uint8_t> bytes(first + second);
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaMemcpy(bytes.data(), combined->data, first, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(bytes.data() + first, arrived->data, second, cudaMemcpyDeviceToHost));
        return bytes;
    }

    void clear() {
        CUDA(cudaMemset(combined->data, 0xee, TOKENS * HIDDEN * 2));
        CUDA(cudaMemset((ht ? received_ids : counters)->data, 0xee, 4 * EXPERTS / ranks));
        CUDA(cudaDeviceSynchronize());
    }
};

static World world(bool ht) {
    World made;
    made.ht = ht;
    made.comm = join();
    ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
    config.algorithm = ht ? NCCL_EP_ALGO_HIGH_THROUGHPUT : NCCL_EP_ALGO_LOW_LATENCY;
    config.num_experts = EXPERTS;
    config.max_dispatch_tokens_per_rank = MOST_TOKENS;
    config.max_token_bytes = HIDDEN * 2;
    config.num_topk = TOPK;
    if (ht) config.max_recv_tokens_per_rank = MOST_TOKENS * ranks;
    NCCL(ncclEpCreateGroup(&made.group, made.comm, &config));
    ncclEpHandleConfig_t handle = NCCL_EP_HANDLE_CONFIG_INIT;
    ncclEpLayout_t layout = ht ? NCCL_EP_LAYOUT_FLAT : NCCL_EP_LAYOUT_EXPERT_MAJOR;
    NCCL(ncclEpInitHandle(&made.handle, made.group, layout, &handle, TOPK, nullptr));
    CUDA(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking));
    size_t rows = MOST_TOKENS * ranks;
    made.ids = tensor(ncclInt64, {TOKENS, TOPK}, 8);
    made.weights = tensor(ncclFloat32, {TOKENS, TOPK}, 4);
    made.tokens = tensor(ncclBfloat16, {TOKENS, HIDDEN}, 2);
    made.combined = tensor(ncclBfloat16, {TOKENS, HIDDEN}, 2);
    if (ht) {
        made.received = tensor(ncclBfloat16, {rows, HIDDEN}, 2);
        made.received_weights = tensor(ncclFloat32, {rows, TOPK}, 4);
        made.received_ids = tensor(ncclInt64, {rows, TOPK}, 8);
    } else {
        size_t local = EXPERTS / ranks;
        made.received = tensor(ncclBfloat16, {local, rows, HIDDEN}, 2);
        made.counters = tensor(ncclInt32, {local}, 4);
    }
    vector<__nv_bfloat16> values(TOKENS * HIDDEN);
    for (size_t i = 0; i < values.size(); i++)
        values[i] = __float2bfloat16((float)((i * 7 + own_rank * 13) % 97) / 16.f);
    CUDA(cudaMemcpy(made.tokens->data, values.data(), values.size() * 2, cudaMemcpyHostToDevice));
    vector<float> weights(TOKENS * TOPK);
    for (size_t i = 0; i < weights.size(); i++) weights[i] = 1.f / (1 + i % 5);
    CUDA(cudaMemcpy(made.weights->data, weights.data(), weights.size() * 4, cudaMemcpyHostToDevice));
    return made;
}

// Captures dispatch and combine, with or without the update, and compares replays with eager runs.
static void graph(bool ht, bool with_update, cudaStreamCaptureMode mode, const char* name) {
    World v = world(ht);
    vector<vector<uint8_t>> eager;
    for (int routing = 0; routing < 4; routing++) {
        v.route(routing);
        NCCL(v.update());
        NCCL(v.dispatch());
        NCCL(v.combine());
        eager.push_back(v.result());
    }
    v.route(0);
    if (!with_update) NCCL(v.update());
    CUDA(cudaStreamSynchronize(v.stream));
    meet("captures");
    CUDA(cudaStreamBeginCapture(v.stream, mode));
    ncclResult_t update = with_update ? v.update() : ncclSuccess;
    ncclResult_t dispatch = v.dispatch(), combine = v.combine();
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t graph = nullptr;
    CUDA(cudaStreamEndCapture(v.stream, &captured));
    size_t nodes = 0;
    if (captured) {
        CUDA(cudaGraphInstantiate(&graph, captured, 0));
        CUDA(cudaGraphGetNodes(captured, nullptr, &nodes));
    }
    SAY("%s: update %d dispatch %d combine %d, %zu nodes", name, update, dispatch, combine, nodes);
    if (graph && !update && !dispatch && !combine) {
        for (int round = 0; round < 4; round++) {
            int routing = with_update ? round : 0;
            v.clear();
            v.route(routing);
            if (!with_update && round == 3) {
                v.route(routing = 3);
                NCCL(v.update());  // outside the graph: reroutes the next replay
                CUDA(cudaStreamSynchronize(v.stream));
            }
            meet("replay" + std::to_string(round) + "_");
            CUDA(cudaGraphLaunch(graph, v.stream));
            const char* verdict = v.result() == eager[routing] ? "as the eager run" : "DIFFERS";
            bool told_apart = routing == 0 || eager[routing] != eager[0];
            SAY("%s: replay %d, routing %d: %s%s", name, round, routing, verdict,
                told_apart ? "" : " (but so is routing 0)");
        }
        v.clear();
        v.route(2);
        meet("eager");
        NCCL(v.update());
        NCCL(v.dispatch());
        NCCL(v.combine());
        SAY("%s: eager after the replays: %s", name, v.result() == eager[2] ? "as before" : "DIFFERS");
    }
    meet("end");
    _exit(0);
}

static bool within(double seconds, std::atomic<bool>& done) {
    Clock::time_point start = Clock::now();
    while (!done && since(start) < seconds) usleep(1000);
    return done;
}

// Rank 1 does not come to a call; rank 0's kernel waits. Then `aborts` says whether rank 0 aborts.
// `kind`: ll, ht, or nccl for an all-reduce of NCCL's own. `killed`: rank 1's process ends.
static void missing(const string& kind, bool killed, bool aborts, const char* name) {
    World v;
    float* floats = nullptr;
    if (kind == "nccl") {
        v.comm = join();
        CUDA(cudaStreamCreateWithFlags(&v.stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc(&floats, 1 << 20));
        NCCL(ncclAllReduce(floats, floats, 1024, ncclFloat, ncclSum, v.comm, v.stream));
    } else {
        v = world(kind == "ht");
        v.route(0);
        NCCL(v.update());
        NCCL(v.dispatch());
        NCCL(v.combine());
        if (v.ht) NCCL(v.update());
    }
    CUDA(cudaStreamSynchronize(v.stream));
    void* spare;
    CUDA(cudaMalloc(&spare, 1 << 20));
    cudaStream_t other;
    cudaEvent_t event;
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    meet("ready");
    if (own_rank == 1) {
        wait_for("spins");
        if (killed) kill(getpid(), 9);
        wait_for("over");
        _exit(0);
    }
    // An ordinary flat dispatch waits for its kernel inside the call; a combine does not.
    ncclResult_t code;
    if (kind == "nccl") code = ncclAllReduce(floats, floats, 1024, ncclFloat, ncclSum, v.comm, v.stream);
    else code = v.ht ? v.combine() : v.dispatch();
    tell("spins");
    usleep(1500000);
    auto stream = [&] { return cudaGetErrorString(cudaStreamQuery(v.stream)); };
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommGetAsyncError(v.comm, &state));
    SAY("%s: call returned %d; asynchronous error %d; stream: %s", name, (int)code, (int)state, stream());

    std::atomic<bool> aborted{false};
    if (aborts) {
        Clock::time_point start = Clock::now();
        std::thread([&] {
            cudaSetDevice(0);
            NCCL(ncclCommAbort(v.comm));
            aborted = true;
        }).detach();
        bool back = within(15, aborted);
        const char* outcome = back ? "returned" : "did NOT return";
        SAY("%s: ncclCommAbort %s, %.2f s; stream: %s", name, outcome, since(start), stream());
    }
    // Each on a thread of its own, since each may never come back.
    auto attempt = [&](const char* what, auto call) {
        auto* done = new std::atomic<bool>(false);
        Clock::time_point start = Clock::now();
        auto* error = new cudaError_t(cudaSuccess);
        std::thread([=] {
            cudaSetDevice(0);
            *error = call();
            *done = true;
        }).detach();
        if (within(4, *done)) SAY("%s: %s: %s, %.3f s", name, what, cudaGetErrorString(*error), since(start));
        else SAY("%s: %s: did NOT return in 4 s", name, what);
    };
    attempt("memset and event on another stream", [=] {
        cudaMemsetAsync(spare, 1, 1 << 20, other);
        cudaEventRecord(event, other);
        return cudaEventSynchronize(event);
    });
    attempt("copy to pageable memory on another stream", [=] {
        char bytes[16];
        cudaMemcpyAsync(bytes, spare, 16, cudaMemcpyDeviceToHost, other);
        return cudaStreamSynchronize(other);
    });
    attempt("cudaMallocAsync and cudaFreeAsync on another stream", [=] {
        void* pooled;
        cudaError_t error = cudaMallocAsync(&pooled, 1 << 20, other);
        return error ? error : cudaFreeAsync(pooled, other);
    });
    attempt("create and destroy an event", [] {
        cudaEvent_t made;
        cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
        return error ? error : cudaEventDestroy(made);
    });
    attempt("create and destroy a stream", [] {
        cudaStream_t made;
        cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
        return error ? error : cudaStreamDestroy(made);
    });
    attempt("cudaMalloc", [] {
        void* fresh;
        return cudaMalloc(&fresh, 1 << 20);
    });
    attempt("cudaFree of memory that the kernel does not use", [=] { return cudaFree(spare); });
    if (getenv("UNTIL_TRAP")) {
        Clock::time_point start = Clock::now();
        while (cudaStreamQuery(v.stream) == cudaErrorNotReady && since(start) < 130) usleep(100000);
        SAY("%s: %.1f s later; stream: %s", name, since(start), stream());
        try {
            ncclResult_t destroyed = ncclEpGroupDestroy(v.group);
            SAY("%s: ncclEpGroupDestroy after the trap: %d", name, (int)destroyed);
        } catch (...) {
            SAY("%s: ncclEpGroupDestroy after the trap: a C++ exception", name);
        }
    }
    tell("over");
    _exit(0);
}

int main(int count, char** words) {
    if (count != 5) return 2;
    own_rank = atoi(words[1]);
    ranks = atoi(words[2]);
    folder = words[3];
    string name = words[4];
    CUDA(cudaSetDevice(0));
    const auto local = cudaStreamCaptureModeThreadLocal, global = cudaStreamCaptureModeGlobal;
    if (name == "graph-ll") graph(false, true, local, words[4]);
    if (name == "graph-ll-global") graph(false, true, global, words[4]);
    if (name == "graph-ht") graph(true, false, local, words[4]);
    if (name == "graph-ht-update") graph(true, true, local, words[4]);
    if (name == "graph-ht-update-global") graph(true, true, global, words[4]);
    for (string kind : {"ll", "ht", "nccl"})
        for (bool killed : {false, true})
            for (bool aborts : {false, true})
                if (name == "missing-" + kind + (killed ? "-killed" : "") + (aborts ? "-abort" : ""))
                    missing(kind, killed, aborts, words[4]);
    fprintf(stderr, "no case %s\n", words[4]);
    return 2;
}
