module github.com/seed8d1e2389/resilience/ci

go 1.25.0
