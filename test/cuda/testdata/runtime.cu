/* runtime.cu - a program of NVIDIA's runtime: memory of all kinds, streams, threads, a graph, a texture and a surface,
 * variables. It prints sums of what it has computed, which are the same in every run. */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(call) check(call, #call)

static void check(cudaError_t e, const char *call) {
	if (e != cudaSuccess) {
		printf("%s: %s\n", call, cudaGetErrorString(e));
		exit(1);
	}
}

__device__ unsigned long long counter, hidden; /* the program never asks for the address of the second */
__constant__ float weights[8];
__managed__ int together;

__global__ void mix(unsigned *p, size_t n, unsigned k) {
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x) {
		unsigned z = p[i] ^ (unsigned)i ^ k;
		z = z * 2654435761u + (unsigned)weights[i & 7];
		p[i] = z ^ (z >> 13);
	}
	if (k != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
		counter += k;
		hidden += 3 * k;
	}
}

__global__ void read_texture(cudaTextureObject_t t, unsigned *out) {
	out[threadIdx.x] = (unsigned)(1000 * tex2D<float>(t, threadIdx.x % 16 + .5f, threadIdx.x / 16 + .5f));
}

__global__ void halve(cudaSurfaceObject_t s, int k) {
	float v;
	surf2Dread(&v, s, (threadIdx.x % 16) * 4, threadIdx.x / 16);
	surf2Dwrite(v * .5f + k, s, (threadIdx.x % 16) * 4, threadIdx.x / 16);
}

__global__ void read_hidden(unsigned long long *out) { *out = hidden; }

static unsigned long long sum(const void *bytes, size_t n) {
	const unsigned char *p = (const unsigned char *)bytes;
	unsigned long long z = 14695981039346656037ull;
	while (n-- > 0) {
		z = (z ^ *p++) * 1099511628211ull;
	}
	return z;
}

/* Each thread has a stream, and memory of a pool that comes and goes. */
static unsigned long long worker(int id) {
	const size_t n = 1 << 16, bytes = n * sizeof(unsigned);
	unsigned long long z = 0;
	unsigned *p, *q, *host;
	cudaStream_t s;
	CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&p, bytes));
	CHECK(cudaMallocHost(&host, bytes));
	CHECK(cudaMemsetAsync(p, id, bytes, s));
	for (int i = 0; i < 60; i++) {
		CHECK(cudaMallocAsync(&q, bytes, s));
		CHECK(cudaMemcpyAsync(q, p, bytes, cudaMemcpyDeviceToDevice, s));
		for (int j = 0; j < 5; j++) {
			mix<<<64, 256, 0, s>>>(q, n, 0);
		}
		CHECK(cudaMemcpyAsync(p, q, bytes, cudaMemcpyDeviceToDevice, s));
		CHECK(cudaFreeAsync(q, s));
		CHECK(cudaMemcpyAsync(host, p, bytes, cudaMemcpyDeviceToHost, s));
		CHECK(cudaStreamSynchronize(s));
		z = z * 31 + sum(host, bytes);
	}
	CHECK(cudaFree(p));
	CHECK(cudaFreeHost(host));
	CHECK(cudaStreamDestroy(s));
	return z;
}

static void threads() {
	unsigned long long z[4];
	std::vector<std::thread> all;
	for (int i = 0; i < 4; i++) {
		all.emplace_back([&z, i] { z[i] = worker(i); });
	}
	for (int i = 0; i < 4; i++) {
		all[i].join();
		printf("thread %d %016llx\n", i, z[i]);
	}
}

int main() {
	const size_t n = 8 << 20, small = 1 << 20, width = 1000, height = 333;
	unsigned *a, *b;
	char *pitched;
	size_t pitch;
	float numbers[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, image[256];
	CHECK(cudaMalloc(&a, n * 4));
	CHECK(cudaMalloc(&b, small));
	CHECK(cudaMallocPitch((void **)&pitched, &pitch, width, height));
	CHECK(cudaMemcpyToSymbol(weights, numbers, sizeof numbers));
	together = 5;
	CHECK(cudaMemset(a, 1, n * 4));
	CHECK(cudaMemset(b, 2, small));
	CHECK(cudaMemset2D(pitched, pitch, 7, width, height));

	cudaArray_t array;
	cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
	for (int i = 0; i < 256; i++) {
		image[i] = (float)i / 7;
	}
	CHECK(cudaMallocArray(&array, &channel, 16, 16, cudaArraySurfaceLoadStore));
	CHECK(cudaMemcpy2DToArray(array, 0, 0, image, 64, 64, 16, cudaMemcpyHostToDevice));
	cudaResourceDesc resource = {};
	cudaTextureDesc how = {};
	cudaTextureObject_t texture;
	cudaSurfaceObject_t surface;
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	CHECK(cudaCreateTextureObject(&texture, &resource, &how, NULL));
	CHECK(cudaCreateSurfaceObject(&surface, &resource));

	cudaStream_t s;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	CHECK(cudaStreamCreate(&s));
	CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	mix<<<256, 256, 0, s>>>(a, n, 2);
	mix<<<64, 256, 0, s>>>(b, small / 4, 4);
	CHECK(cudaStreamEndCapture(s, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));

	std::vector<unsigned> host(n);
	for (int i = 0; i < 150; i++) {
		mix<<<512, 256, 0, s>>>(a, n, i);
		CHECK(cudaGraphLaunch(exec, s));
		if (i % 10 == 0) {
			halve<<<1, 256, 0, s>>>(surface, i);
			read_texture<<<1, 256, 0, s>>>(texture, b);
		}
		if (i % 50 == 49) {
			CHECK(cudaMemcpyAsync(host.data(), a, n * 4, cudaMemcpyDeviceToHost, s));
			CHECK(cudaStreamSynchronize(s));
			printf("step %d %016llx\n", i, sum(host.data(), n * 4));
		}
	}
	threads();

	unsigned long long counted, hid, *at;
	std::vector<char> rows(width * height);
	CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
	CHECK(cudaMalloc(&at, sizeof *at));
	read_hidden<<<1, 1, 0, s>>>(at);
	CHECK(cudaMemcpyAsync(&hid, at, sizeof hid, cudaMemcpyDeviceToHost, s));
	CHECK(cudaStreamSynchronize(s));
	CHECK(cudaMemcpy(host.data(), b, small, cudaMemcpyDeviceToHost));
	CHECK(cudaMemcpy2D(rows.data(), width, pitched, pitch, width, height, cudaMemcpyDeviceToHost));
	printf("b %016llx counter %llu hidden %llu pitched %016llx managed %d\n", sum(host.data(), small), counted, hid,
		sum(rows.data(), rows.size()), together);
	return 0;
}
