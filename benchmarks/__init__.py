"""Speed, as ratios in one run: ours and the reference interleaved, medians of five."""
