module github.com/retrysafe/retrysafe/frameworks/recipes

go 1.26.0

replace github.com/retrysafe/retrysafe => ../../

require (
	github.com/danielgtaylor/huma/v2 v2.37.2
	github.com/oapi-codegen/runtime v1.8.0
	github.com/retrysafe/retrysafe v0.0.0-00010101000000-000000000000
)

require (
	github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
	github.com/go-chi/chi/v5 v5.5.0
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
