#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"

namespace ingot::cli {
namespace {

constexpr double kWidth = 640, kHeight = 400, kLeft = 70, kRight = 20, kTop = 50, kBottom = 50;

struct Point {
  double x, y;
};

// The next round number (1, 2 or 5 times a power of ten) at or above `value`.
double round_up(double value) {
  double scale = 1;
  while (scale * 10 < value) scale *= 10;
  for (double step : {1.0, 2.0, 5.0, 10.0})
    if (scale * step >= value) return scale * step;
  return scale * 10;
}

std::string polyline(const std::vector<Point>& points, const char* style) {
  std::string text;
  for (const Point& p : points) text += fmt::format("{:.1f},{:.1f} ", p.x, p.y);
  return fmt::format("<polyline points=\"{}\" fill=\"none\" {}/>\n", text, style);
}

}  // namespace

void write_batch_plot(const std::string& path, const nlohmann::ordered_json& report) {
  const auto& rows = report["rows"];
  double most_speed = 1, most_batch = 1;
  for (const auto& row : rows) {
    most_speed = std::max(most_speed, row["decode_tok_s"].get<double>());
    most_batch = std::max(most_batch, row["batch"].get<double>());
  }
  const double top = round_up(most_speed);
  const auto place = [&](double batch, double speed) {
    return Point{kLeft + batch / most_batch * (kWidth - kLeft - kRight),
                 kHeight - kBottom - std::min(speed, top) / top * (kHeight - kTop - kBottom)};
  };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">Decode speed by batch size</text>\n"
      "<text x=\"{2}\" y=\"40\" fill=\"#666\">{3}</text>\n",
      kWidth, kHeight, kLeft, report["device"].get<std::string>());
  constexpr int kLines = 5;
  for (int i = 0; i <= kLines; ++i) {
    const double speed = top * i / kLines;
    const Point p = place(0, speed);
    svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
                       kWidth - kRight, p.y);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.0f}</text>\n", kLeft - 6, p.y + 4, speed);
  }
  std::vector<Point> measured, ideal;
  const double per_sequence = rows.empty() ? 0 : rows[0]["decode_tok_s"].get<double>() / rows[0]["batch"].get<double>();
  ideal.push_back(place(0, 0));
  const double ideal_end = std::min(most_batch, per_sequence > 0 ? top / per_sequence : most_batch);
  ideal.push_back(place(ideal_end, ideal_end * per_sequence));
  for (const auto& row : rows) {
    const double batch = row["batch"].get<double>();
    const Point p = place(batch, row["decode_tok_s"].get<double>());
    measured.push_back(p);
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#1f6feb\"/>\n", p.x, p.y);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>\n", p.x,
                       kHeight - kBottom + 18, batch);
  }
  svg += polyline(ideal, "stroke=\"#999\" stroke-dasharray=\"4 4\"");
  svg += polyline(measured, "stroke=\"#1f6feb\" stroke-width=\"2\"");
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">batch (dashed: ideal scaling)</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 10);
  svg += fmt::format(
      "<text x=\"14\" y=\"{:.1f}\" transform=\"rotate(-90 14 {:.1f})\" text-anchor=\"middle\">tok/s</text>\n</svg>\n",
      kHeight / 2, kHeight / 2);
  std::ofstream file(path);
  if (!(file << svg)) throw_error(ErrorKind::io, "{}: cannot be written", path);
}

}  // namespace ingot::cli
