module inorder/bench/peers/goharvest

go 1.21

require (
	github.com/asaskevich/govalidator v0.0.0-20200108200545-475eaeb16496
	github.com/confluentinc/confluent-kafka-go/v2 v2.11.1
	github.com/go-ozzo/ozzo-validation v3.6.0+incompatible
	github.com/google/uuid v1.6.0
	github.com/lib/pq v1.5.1
	github.com/obsidiandynamics/goharvest v0.3.2-0.20210203061948-1239a594e9dc
	github.com/obsidiandynamics/goneli v0.4.3
	github.com/obsidiandynamics/libstdgo v0.4.1
	gopkg.in/yaml.v2 v2.4.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/stretchr/testify v1.9.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/obsidiandynamics/goharvest => ./goharvest

replace github.com/obsidiandynamics/goneli => ./goneli
