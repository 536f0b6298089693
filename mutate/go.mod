module github.com/seed8d1e2389/resilience/mutate

go 1.25.0
