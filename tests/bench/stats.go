package main

import (
	"math"
	"slices"
)

var nan = math.NaN()

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// jain returns Jain's fairness index (Jain, Chiu and Hawe 1984): 1 if all n shares are equal,
// 1/n if one share is everything, NaN if all shares are 0.
func jain(shares []float64) float64 {
	sum, squares := 0., 0.
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return nan
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// percentile returns the smallest value such that at least p percent of the values do not
// exceed it; NaN if there are no values.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return nan
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the middle value, or the mean of the two in the middle; NaN if there are no
// values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return nan
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
