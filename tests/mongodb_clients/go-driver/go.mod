module poolhouse/tests/mongodb_clients/go-driver

go 1.26.0

require go.mongodb.org/mongo-driver/v2 v2.10.0 // indirect
