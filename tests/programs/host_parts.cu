// The host side of the standalone programs, checked without a GPU: the programs are included whole, their mains renamed.
// Prints one line per failure and exits with their number.

#define main matmulStepsMain
#include "../../code/day43-matmul-1/matmul_steps.cu"
#undef main

extern "C" void matmulCpu(const float* a, const float* b, float* c, int m, int n, int k);

static int failures = 0;

static void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("FAILED: %s\n", what);
    ++failures;
}

static bool near(double got, double expected) {
    return std::fabs(got - expected) < 1e-12 * std::fabs(expected);
}

static void testPaperModel() {
    const double sectors[] = {8.5, 2.0, 4.0};
    const int loads[][3] = {{1024, 1024, 64}, {2048, 2048, 128}, {34, 34, 4}};  // at 512, 1024 and 17
    const int sizes[] = {512, 1024, 17};
    for (const Step& step : STEPS) {
        expect(sectorsPerRequest(step, 512) == sectors[step.number - 1], step.name);
        expect(sectorsPerRequest(step, 1024) == sectors[step.number - 1], step.name);
        for (int i = 0; i < 3; ++i) expect(loadsPerThread(step, sizes[i]) == loads[i][step.number - 1], step.name);
    }
}

static void testComparison() {
    const Size size{3, 5, 7};
    const std::vector<float> a = randomMatrix(size.m, size.k, 1), b = randomMatrix(size.k, size.n, 2);
    const Reference reference = referenceProduct(a, b, size);
    double byHand = 0.0;
    for (int i = 0; i < size.k; ++i) byHand += double(a[2 * size.k + i]) * b[i * size.n + 4];
    expect(near(reference.values[2 * size.n + 4], byHand), "the reference is the product");

    std::vector<float> c(size.m * size.n, NAN);
    expect(!matches("allNaN", size, c, reference), "an output that nobody wrote is refused");
    matmulCpu(a.data(), b.data(), c.data(), size.m, size.n, size.k);
    expect(matches("cpu", size, c, reference), "the CPU loop is right");

    const float right = c[1 * size.n + 3];
    for (const float wrong : {NAN, INFINITY, -right, 0.0f, right * 1.00001f}) {
        c[1 * size.n + 3] = wrong;
        expect(!matches("oneWrong", size, c, reference), "one wrong element is found");
    }
    c[1 * size.n + 3] = std::nextafter(right, 2.0f);
    expect(matches("rounding", size, c, reference), "one unit in the last place is rounding");
}

static void testTolerance() {
    // The smallest mistake: one product of the K left out. Its share is at least 0.25 of a sum of about K.
    for (const int k : {1, 16, 512, 1024, 4096}) expect(relativeTolerance(k) < 0.25 / (1.5 * k), "a lost product shows");
}

static void testSample() {
    const Size size{2048, 2048, 512};  // 2³¹ multiply-adds: half of the rows
    const Reference reference = referenceProduct(randomMatrix(size.m, size.k, 1), randomMatrix(size.k, size.n, 2), size);
    expect(reference.rows.size() == 1024, "the sample is as large as the work allows");
    expect(reference.rows.front() == 0 && reference.rows.back() == 2047, "the first and the last row are in it");
}

static void testTiming() {
    const Timing timing = summarise({4.0, 1.0, 3.0, 10.0});
    expect(timing.mean == 4.5 && timing.median == 3.5 && timing.min == 1.0 && timing.max == 10.0, "summary of times");
    expect(timing.repeats == 4, "count of times");
    expect(near(gflops({512, 512, 512}, 1.0), 268.435456), "512³ in a millisecond");
}

static void testTable(const char* csvPath) {
    Table table({"n", "kernel", "ms"});
    table.add({"512", "plain", fixed(0.6449, 2)});
    table.add({"1024", "a \"quoted\", one", fixed(12.0, 2)});
    table.print();
    table.writeCsv(csvPath);
}

int main(int, char** argv) {
    testPaperModel();
    testComparison();
    testTolerance();
    testSample();
    testTiming();
    testTable(argv[1]);
    return failures;
}
