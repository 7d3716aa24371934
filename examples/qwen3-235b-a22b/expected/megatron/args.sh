# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 94
  --hidden-size 4096
  --ffn-hidden-size 1536
  --num-attention-heads 64
  --group-query-attention
  --num-query-groups 4
  --kv-channels 128
  --qk-layernorm
  --disable-bias-linear
  --swiglu
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --untie-embeddings-and-output-weights
  --position-embedding-type rope
  --rotary-base 1000000
  --rotary-percent 1.0
  --max-position-embeddings 40960
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 151936
  --make-vocab-size-divisible-by 128
  # experts
  --num-experts 128
  --moe-ffn-hidden-size 1536
  --moe-router-topk 8
  --moe-router-score-function softmax
  --moe-router-load-balancing-type aux_loss
  --moe-aux-loss-coeff 0.001
  --moe-router-dtype fp32
  --moe-router-fusion
  --moe-router-force-load-balancing
  --moe-grouped-gemm
  --moe-permute-fusion
  --moe-token-dispatcher-type alltoall
  # parallelism
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 2
  --context-parallel-size 1
  --expert-model-parallel-size 64
  --expert-tensor-parallel-size 1
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # pipeline
  --pipeline-model-parallel-layout 'Et*8|(t*8|)*10,t*6,L'
  # batch
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 2048
  --train-iters 1000
  --eval-iters 0
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --lr-warmup-fraction 0.01
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  # precision
  --bf16
  --transformer-impl transformer_engine
  --attention-backend auto
  # graphs
  --cuda-graph-impl transformer_engine
  --cuda-graph-modules attn moe_router moe_preprocess
  --te-rng-tracker
  # data
  --mock-data
  --tokenizer-type NullTokenizer
  --no-create-attention-mask-in-dataloader
  # checkpoint
  --ckpt-format torch_dist
  # log
  --log-interval 1
  --log-throughput
  --manual-gc
  --manual-gc-interval 100
)
