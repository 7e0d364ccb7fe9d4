// Tables, shared by the course's standalone programs: aligned on the terminal, or written as CSV.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// A number with so many digits after the point.
inline std::string fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

class Table {
  public:
    explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

    // Numbers to the right, words to the left, two spaces between columns.
    void print() const {
        for (const auto& row : rows_) {
            for (size_t column = 0; column < row.size(); ++column) {
                const int width = columnWidth(column);
                const char* text = row[column].c_str();
                std::printf(isWords(column) ? "%-*s" : "%*s", width, text);
                std::printf(column + 1 < row.size() ? "  " : "\n");
            }
        }
    }

    void writeCsv(const std::string& path) const {
        std::FILE* file = std::fopen(path.c_str(), "w");
        if (!file) failToWrite(path);
        for (const auto& row : rows_) {
            for (size_t column = 0; column < row.size(); ++column) {
                std::fprintf(file, "%s%c", quoted(row[column]).c_str(), column + 1 < row.size() ? ',' : '\n');
            }
        }
        if (std::ferror(file) | std::fclose(file)) failToWrite(path);
    }

  private:
    int columnWidth(size_t column) const {
        size_t width = 0;
        for (const auto& row : rows_) width = std::max(width, row[column].size());
        return int(width);
    }

    bool isWords(size_t column) const {
        for (size_t i = 1; i < rows_.size(); ++i) {
            const std::string& cell = rows_[i][column];
            if (cell.find_first_not_of("0123456789.-x") != std::string::npos) return true;
        }
        return false;
    }

    static std::string quoted(const std::string& cell) {
        if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
        std::string text = "\"";
        for (const char letter : cell) text += letter == '"' ? std::string("\"\"") : std::string(1, letter);
        return text + '"';
    }

    [[noreturn]] static void failToWrite(const std::string& path) {
        std::perror(("cannot write " + path).c_str());
        std::exit(EXIT_FAILURE);
    }

    std::vector<std::vector<std::string>> rows_;  // the header first
};
