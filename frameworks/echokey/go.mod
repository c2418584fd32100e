module github.com/retrysafe/retrysafe/frameworks/echokey

go 1.26.0

replace github.com/retrysafe/retrysafe => ../../

require (
	github.com/labstack/echo/v5 v5.3.1
	github.com/retrysafe/retrysafe v0.0.0-00010101000000-000000000000
)

require golang.org/x/time v0.16.0 // indirect
