package ginkey_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/ginkey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, adaptertest.Adapter{Serve: serve, Pattern: "POST /accounts/:id/charges"})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	adaptertest.BadInput(t, "ginkey", func(e *retrysafe.Engine, scope bool, o *httpkey.Options) error {
		of := tenant
		if !scope {
			of = nil
		}
		_, err := ginkey.New(e, of, o)
		return err
	})
}

var tenant = func(c *gin.Context) (string, error) { return adaptertest.Tenant(c.GetString("tenant")) }

func auth(c *gin.Context) {
	c.Set("tenant", c.GetHeader("X-Tenant"))
	c.Header("Deprecation", c.GetHeader("X-Outer"))
}

// render writes the last error of c.Error, as applications do.
func render(c *gin.Context) {
	c.Next()
	switch last := c.Errors.Last(); {
	case last == nil:
	case errors.Is(last, adaptertest.ErrRefused):
		c.JSON(http.StatusPaymentRequired, gin.H{"error": last.Error()})
	default:
		c.JSON(http.StatusInternalServerError, gin.H{"error": "internal"})
	}
}

// serve is the service on gin, with gin's own recovery outside.
func serve(t *testing.T, s *adaptertest.Service) string {
	t.Helper()
	guard, err := ginkey.New(s.Engine, tenant, s.Options)
	if err != nil {
		t.Fatal(err)
	}
	app := gin.New()
	app.Use(gin.Recovery(), auth)
	routes := app.Group("/", guard, render)
	if s.Everywhere {
		app.Use(guard, render)
		routes = app.Group("/")
	}
	charge := func(c *gin.Context) {
		body, _ := c.GetRawData()
		a := s.Charge(c.Request.Context(), c.Param("id"), body)
		for name, values := range a.Header {
			c.Writer.Header()[name] = values
		}
		c.Data(a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	routes.POST("/accounts/:id/charges", charge)
	routes.POST("/accounts/:id/refunds", charge)
	routes.GET("/accounts/:id", func(c *gin.Context) { c.String(http.StatusOK, c.Param("id")) })
	fails := func(err error) gin.HandlerFunc {
		return func(c *gin.Context) {
			s.Ran(c.Request.Context())
			_ = c.Error(err)
			c.Abort()
		}
	}
	routes.POST("/refused", fails(adaptertest.ErrRefused))
	routes.POST("/broken", fails(adaptertest.ErrBroken))
	routes.POST("/panic", func(c *gin.Context) { s.Panic(c.Request.Context()) }, func(*gin.Context) { t.Error("the handler behind a panic ran") })
	routes.POST("/empty", func(c *gin.Context) {
		s.Ran(c.Request.Context())
		c.Status(http.StatusNoContent)
	})
	routes.POST("/stream", func(c *gin.Context) {
		s.Ran(c.Request.Context())
		words := []string{"one ", "two"}
		c.Stream(func(w io.Writer) bool {
			_, _ = io.WriteString(w, words[0])
			words = words[1:]
			return len(words) > 0
		})
	})
	routes.POST("/hijack", func(c *gin.Context) {
		s.Ran(c.Request.Context())
		_, _, err := c.Writer.Hijack()
		c.String(http.StatusOK, fmt.Sprint(err))
	})
	routes.POST("/commit", func(c *gin.Context) {
		c.String(http.StatusCreated, "committed")
		ctx := c.Request.Context()
		if err := s.InTx(ctx, func(tx retrysafe.Tx) error { return httpkey.CompleteTx(ctx, c.Writer, tx) }); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(app)
	t.Cleanup(server.Close)
	return server.URL
}
